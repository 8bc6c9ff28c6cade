"""``BatchEngine``: batch after batch, by cases that can be computed by hand; and the workers that have one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Content, Observation, Request, Task, Weights
from dartsim.sim import run_virtual
from dartsim.sim.engine import ABORTED, DONE
from dartsim.sim.measured_engines import BatchEngine
from dartsim.sim.model_worker import ModelWorker
from dartsim.sim.prompts import PromptModel
from dartsim.sim.worker import SimWorker
from dartsim.testing.ports import check_policy_worker

PROMPTS = PromptModel()
RELOAD = 5.0


def now():
    return asyncio.get_running_loop().time()


def engine(*, batch=1.0, each=0.5, **options):
    return BatchEngine(asyncio.get_running_loop().env, batch_seconds=batch, request_seconds=each, **options)


def ask(inner, ended, name, at=0.0):
    """Hand a request in at a time, and note when it is done."""

    async def later():
        await asyncio.sleep(at)
        return inner.submit(10, 0, 1, 1, lambda job: ended.__setitem__(name, now()))

    return asyncio.get_running_loop().create_task(later())


async def test_what_waits_is_one_batch_and_what_comes_meanwhile_the_next():
    ended = {}
    inner = engine()
    for name, at in (("a", 0.0), ("b", 0.0), ("c", 0.5), ("d", 1.9), ("e", 2.0)):
        ask(inner, ended, name, at)
    await asyncio.sleep(100.0)
    # a and b: 1 + 2 x .5 = 2; c, d (and e, which comes as they begin, is late): 2 + 2 = 4; e: 4 + 1.5.
    assert ended == {"a": 2.0, "b": 2.0, "c": 4.0, "d": 4.0, "e": 5.5}
    assert not inner.num_jobs


async def test_a_factor_is_drawn_for_each_batch():
    ended = {}
    factors = iter([2.0, 0.5])
    inner = engine(max_batch=1, factor=lambda: next(factors))
    ask(inner, ended, "a")
    ask(inner, ended, "b")
    await asyncio.sleep(100.0)
    assert ended == {"a": 3.0, "b": 3.75}


async def test_an_aborted_request_is_not_answered_and_its_batch_takes_as_long():
    ended = {}
    inner = engine()
    first, second, waits = await asyncio.gather(
        ask(inner, ended, "a"), ask(inner, ended, "b"), ask(inner, ended, "c", 1.0)
    )
    assert [inner.abort(first), inner.abort(waits), inner.abort(waits)] == [True, True, False]
    assert inner.num_jobs == 1
    await asyncio.sleep(100.0)
    assert ended == {"b": 2.0}
    assert (first.state, second.state, waits.state) == (ABORTED, DONE, ABORTED)


async def test_a_pause_lets_the_batch_end_and_holds_what_waits():
    ended = {}
    inner = engine()
    ask(inner, ended, "a")
    await asyncio.sleep(0.5)
    ask(inner, ended, "b")
    inner.pause()
    assert inner.seconds_until_still == 1.0
    await asyncio.sleep(9.5)
    assert (ended, inner.seconds_until_still) == ({"a": 1.5}, 0.0)
    inner.resume()
    await asyncio.sleep(100.0)
    assert ended == {"a": 1.5, "b": 11.5}


async def test_a_pause_at_the_instant_of_a_request_comes_first():
    ended = {}
    inner = engine()
    inner.submit(10, 0, 1, 1, lambda job: ended.__setitem__("a", now()))
    inner.pause()
    await asyncio.sleep(4.0)
    assert ended == {}
    inner.resume()
    inner.resume()
    await asyncio.sleep(4.0)
    assert ended == {"a": 5.5}


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.booleans()), min_size=1, max_size=30),
    st.floats(0.01, 3.0),
    st.floats(0.0, 1.0),
    st.integers(1, 5),
)
def test_every_request_is_answered_once_unless_aborted_and_never_sooner_than_alone(asked, batch, each, most):
    ended = {}

    async def main():
        inner = engine(batch=batch, each=each, max_batch=most)
        jobs = [ask(inner, ended, number, at) for number, (at, _) in enumerate(asked)]
        await asyncio.sleep(51.0)
        for job, (_, gone) in zip(jobs, asked, strict=True):
            if gone:
                inner.abort(job.result())
        await asyncio.sleep(1e4)
        assert not inner.num_jobs
        return [job.result().state for job in jobs]

    states = run_virtual(main())
    for number, ((at, gone), state) in enumerate(zip(asked, states, strict=True)):
        assert state == DONE or (gone and state == ABORTED)
        assert (number in ended) == (state == DONE)
        if number in ended:
            assert ended[number] >= at + batch + each - 1e-9


# ---- workers


class Echo:
    """A model that notes what it was asked at once."""

    def __init__(self):
        self.batches = []

    def add(self, weights):
        pass

    def act(self, request):
        return "WAIT"

    def compute(self, requests, version):
        self.batches.append((version, [request.attempt.id for request in requests]))
        return [Content("WAIT", [1], [-0.5], [0.2]) for _ in requests]


def options():
    return {
        "prompts": PROMPTS,
        "reply_tokens": lambda: 10,
        "reload_seconds": lambda: RELOAD,
        "prefix_cache": True,
    }


def surrogate_worker():
    return SimWorker(0, engine(), policy=Echo(), **options())


def content_worker(model=None):
    return ModelWorker(0, engine(), model=model or Echo(), **options())


def request(number):
    attempt = Attempt(number, Task("t", "Press."), 0, 0, number, 30, 0)
    return Request(attempt, 0, Observation(None, "Press."), [])


@pytest.mark.parametrize("make", [surrogate_worker, content_worker])
async def test_workers_with_such_an_engine_conform(make):
    await check_policy_worker(make())


@pytest.mark.parametrize("make", [surrogate_worker, content_worker])
async def test_weights_wait_for_the_batch_and_never_change_within_one(make):
    worker = make()
    loop = asyncio.get_running_loop()
    first = loop.create_task(worker.generate(request(1)))
    await asyncio.sleep(0.5)
    second = loop.create_task(worker.generate(request(2)))
    await worker.load(Weights(1), SyncMode.KEEP)
    assert now() == 1.5 + RELOAD  # the batch ends at 1.5
    assert first.done()
    replies = await first, await second
    assert [(reply.oldest_version, reply.version) for reply in replies] == [(0, 0), (1, 1)]
    assert now() == 1.5 + RELOAD + 1.5


async def test_contents_of_what_waits_are_those_of_the_weights_that_it_meets():
    model = Echo()
    worker = content_worker(model)
    loop = asyncio.get_running_loop()
    first = loop.create_task(worker.generate(request(1)))
    await asyncio.sleep(0.5)
    second = loop.create_task(worker.generate(request(2)))
    await worker.load(Weights(1), SyncMode.KEEP)
    await asyncio.gather(first, second)
    assert model.batches[-1] == (1, [2])
    assert model.batches[0][0] == 0
