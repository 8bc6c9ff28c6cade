"""``SimWorker``: replies after the engine's time, prefix hits, and the three ways to change weights."""

import asyncio

import pytest

from dartsim.core.errors import InvariantViolated, WorkerFault, WorkerRestarted
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Observation, Request, Task, Weights
from dartsim.sim.engine import FluidEngine
from dartsim.sim.gpu import H100
from dartsim.sim.prompts import PromptModel
from dartsim.sim.worker import PrefixCache, SimWorker
from dartsim.testing.ports import check_policy_worker

PROMPTS = PromptModel()
TASK = Task("t", "")
RELOAD = 50.0


class Echo:
    """A policy that says which turn it was asked for."""

    def act(self, request):
        return f"turn {request.turn}"


def worker(*, load_fails=(), prefix_cache=True, tokens=104, **options):
    loop = asyncio.get_running_loop()
    fails = iter(load_fails)
    made = SimWorker(
        3,
        FluidEngine(loop.env, H100),
        prompts=PROMPTS,
        policy=Echo(),
        reply_tokens=lambda: tokens,
        reload_seconds=lambda: RELOAD,
        prefix_cache=prefix_cache,
        **options,
    )
    made.load_fails = lambda: next(fails, False)
    return made


def request(turn=0, session=0):
    attempt = Attempt(session, TASK, 0, session, seed=0, turn_limit=1000, version=0)
    return Request(attempt, turn, Observation(None, ""), [])


def now():
    return asyncio.get_running_loop().time()


def start(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


async def alone(prompt, tokens=104):
    """The time an engine takes for one prompt that it meets alone."""
    engine = FluidEngine(asyncio.get_running_loop().env, H100)
    done = asyncio.get_running_loop().create_future()
    begin = now()
    engine.submit(prompt.tokens, prompt.cached_tokens, prompt.images, tokens, lambda job: done.set_result(None))
    await done
    return now() - begin


async def timed(coroutine):
    begin = now()
    result = await coroutine
    return result, now() - begin


async def test_a_reply_takes_the_engine_s_time_and_says_who_made_it():
    reply, seconds = await timed(worker().generate(request(turn=2)))
    assert seconds == pytest.approx(await alone(PROMPTS.cold[2]), abs=1e-12)
    assert (reply.action, reply.version, reply.oldest_version, reply.worker) == ("turn 2", 0, 0, 3)
    assert (reply.prompt_tokens, reply.response_tokens) == (PROMPTS.cold[2].tokens, 104)


@pytest.mark.parametrize("prefix_cache", [True, False])
async def test_the_turn_after_one_that_the_worker_served_finds_its_prefix(prefix_cache):
    engine = worker(prefix_cache=prefix_cache)
    seconds = [(await timed(engine.generate(request(turn))))[1] for turn in (0, 1, 2)]
    tables = [PROMPTS.cold, PROMPTS.warm if prefix_cache else PROMPTS.cold]
    wanted = [await alone(tables[turn > 0][turn]) for turn in (0, 1, 2)]
    assert seconds == pytest.approx(wanted, abs=1e-9)


async def test_sessions_do_not_share_prefixes_and_skipped_turns_break_them():
    engine = worker()
    await engine.generate(request(0, session=1))
    for asked in (request(1, session=2), request(2, session=1)):
        _, seconds = await timed(engine.generate(asked))
        assert seconds == pytest.approx(await alone(PROMPTS.cold[asked.turn]), abs=1e-9)


async def test_new_weights_make_every_prefix_cold():
    engine = worker()
    await engine.generate(request(0))
    await engine.load(Weights(1), SyncMode.DRAIN)
    _, seconds = await timed(engine.generate(request(1)))
    assert seconds == pytest.approx(await alone(PROMPTS.cold[1]), abs=1e-9)


def test_a_prefix_cache_forgets_the_session_that_was_used_longest_ago():
    cache = PrefixCache(max_sessions=2)
    assert not cache.use(1, 0)
    assert not cache.use(2, 0)
    assert cache.use(1, 1)
    assert not cache.use(3, 0)  # 2 is forgotten
    assert cache.use(1, 2)
    assert not cache.use(2, 1)  # 3 is forgotten
    assert not cache.use(1, 2)  # the same turn again: what is held is not the turn before
    cache.clear()
    assert not cache.use(1, 3)


async def test_a_cancelled_request_leaves_the_engine():
    engine = worker()
    asking = start(engine.generate(request()))
    await asyncio.sleep(0.1)
    assert engine.engine.num_jobs
    asking.cancel()
    await asyncio.wait([asking])
    assert (engine.engine.num_jobs, engine.engine.kv_tokens) == (0, 0)


async def test_a_change_of_weights_takes_its_time():
    engine = worker()
    await engine.load(Weights(7), SyncMode.DRAIN)
    assert (now(), engine.version) == (RELOAD, 7)
    assert (await engine.generate(request())).version == 7


async def test_a_restart_kills_what_runs_at_once():
    engine = worker()
    live = [start(engine.generate(request(session=session))) for session in range(3)]
    await asyncio.sleep(0.1)
    loading = start(engine.load(Weights(1), SyncMode.RESTART))
    await asyncio.wait(live)
    assert now() == 0.1
    assert [type(task.exception()) for task in live] == [WorkerRestarted] * 3
    assert not engine.engine.num_jobs
    await loading
    assert (now(), (await engine.generate(request())).version) == (0.1 + RELOAD, 1)


async def test_an_engine_that_restarts_refuses_what_was_on_its_way_to_it():
    engine = worker(load_fails=[True])
    for _ in range(2):
        loading = start(engine.load(Weights(1), SyncMode.RESTART))
        await asyncio.sleep(0.1)
        with pytest.raises(WorkerRestarted, match="is being restarted"):
            await engine.generate(request())
        assert not engine.engine.num_jobs
        await asyncio.wait([loading])
        if loading.exception() is not None:
            with pytest.raises(WorkerRestarted, match="is being restarted"):
                await engine.generate(request())
    reply = await engine.generate(request())
    assert (reply.oldest_version, reply.version) == (1, 1)


async def test_a_request_that_is_cancelled_as_it_is_killed_is_cancelled():
    engine = worker()
    asking = start(engine.generate(request()))
    await asyncio.sleep(0.1)
    loading = start(engine.load(Weights(1), SyncMode.RESTART))
    await asyncio.sleep(0)
    asking.cancel()
    await loading
    assert asking.cancelled()


async def test_kept_requests_are_frozen_while_weights_load_and_go_on_under_the_new_ones():
    engine = worker()
    asking = start(timed(engine.generate(request())))
    await asyncio.sleep(0.25)
    await engine.load(Weights(1), SyncMode.KEEP)
    reply, seconds = await asking
    assert seconds == pytest.approx(await alone(PROMPTS.cold[0]) + RELOAD, abs=1e-9)
    assert (reply.oldest_version, reply.version) == (0, 1)


@pytest.mark.parametrize("mode", SyncMode)
async def test_a_load_that_fails_takes_its_time_and_leaves_the_old_version(mode):
    engine = worker(load_fails=[True])
    with pytest.raises(WorkerFault, match="worker 3 could not load version 1"):
        await engine.load(Weights(1), mode)
    assert (now(), engine.version) == (RELOAD, 0)
    await engine.load(Weights(1), mode)
    assert (await engine.generate(request())).version == 1


async def test_after_a_load_that_failed_an_engine_serves_nothing_until_one_works():
    engine = worker(load_fails=[True])
    asking = start(timed(engine.generate(request())))
    await asyncio.sleep(0.25)
    with pytest.raises(WorkerFault):
        await engine.load(Weights(1), SyncMode.KEEP)
    await asyncio.sleep(1000.0)
    assert not asking.done()
    await engine.load(Weights(1), SyncMode.KEEP)
    reply, seconds = await asking
    assert seconds == pytest.approx(await alone(PROMPTS.cold[0]) + 2 * RELOAD + 1000.0, abs=1e-9)
    assert (reply.oldest_version, reply.version) == (0, 1)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("forgets its version", "generated by versions 0 to 0, while versions 1 to 1 were served"),
        ("kills in keep mode", "a weight sync in mode keep killed a request"),
    ],
)
async def test_a_worker_that_breaks_its_promise_does_not_conform(broken, message):
    class Broken:
        def __init__(self):
            self.inner = worker()

        async def generate(self, request):
            return await self.inner.generate(request)

        async def load(self, weights, mode):
            kill = broken == "kills in keep mode" and mode.keeps_requests
            await self.inner.load(weights, SyncMode.RESTART if kill else mode)
            if broken == "forgets its version":
                self.inner.version = 0

    with pytest.raises(InvariantViolated, match=message):
        await check_policy_worker(Broken())


async def test_a_change_without_a_restart_takes_the_time_of_a_transfer():
    engine = worker(transfer_seconds=lambda: 4.0)
    for mode, seconds in ((SyncMode.KEEP, 4.0), (SyncMode.DRAIN, 4.0), (SyncMode.RESTART, RELOAD)):
        before = now()
        await engine.load(Weights(engine.version + 1), mode)
        assert now() - before == seconds


async def test_requests_that_lose_their_cache_are_asked_again_with_what_they_had_said():
    """From the middle of a long reply: a transfer, the client's wait, a prefill of all, and the rest of the reply."""
    whole = await alone(PROMPTS.cold[0], 1000)
    engine = worker(tokens=1000, transfer_seconds=lambda: 4.0, forgets=True, retry_seconds=1.0)
    before = now()
    reply = start(engine.generate(request()))
    await asyncio.sleep(whole / 2)
    await engine.load(Weights(1), SyncMode.KEEP)
    answer = await reply
    kept = whole + 4.0
    prefill = await alone(PROMPTS.cold[0], 1)
    assert (answer.oldest_version, answer.version, answer.response_tokens) == (0, 1, 1000)
    assert kept + 1.0 + 0.8 * prefill < now() - before - prefill < kept + 1.0 + 1.5 * prefill
    assert engine.engine.num_jobs == 0


async def test_a_prompt_that_was_computed_again_was_not_found_in_the_cache():
    """Turn 2 begins with turn 1's prefix as turn 1 did with turn 0's; a weight change takes it away."""
    engine = worker(tokens=1000, transfer_seconds=lambda: 4.0, forgets=True, retry_seconds=1.0)
    assert (await engine.generate(request(0))).cached_tokens == 0
    assert (await engine.generate(request(1))).cached_tokens == PROMPTS.warm[1].cached_tokens > 0
    reply = start(engine.generate(request(2)))
    await asyncio.sleep(0.5)
    await engine.load(Weights(1), SyncMode.KEEP)
    assert (await reply).cached_tokens == 0


async def test_a_request_cancelled_while_it_waits_to_be_asked_again_leaves_nothing():
    engine = worker(tokens=1000, transfer_seconds=lambda: 4.0, forgets=True, retry_seconds=1.0)
    reply = start(engine.generate(request()))
    await asyncio.sleep(0.5)
    await engine.load(Weights(1), SyncMode.KEEP)
    reply.cancel()
    await asyncio.sleep(2.0)
    assert engine.engine.num_jobs == 0


@pytest.mark.parametrize("forgets", [True, False])
async def test_a_worker_that_forgets_keeps_the_port(forgets):
    await check_policy_worker(worker(forgets=forgets, retry_seconds=0.5))
