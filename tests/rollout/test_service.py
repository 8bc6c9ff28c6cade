"""``RolloutService``: requests, retries, and whose time is counted as what."""

import asyncio

import pytest

from dartsim.core.errors import WorkerFault
from dartsim.core.types import Request, Weights
from dartsim.observe import DesktopState
from dartsim.rollout import RolloutService
from dartsim.rollout.routers.least_in_flight import LeastInFlight
from dartsim.rollout.routers.session_affine import SessionAffine


class Pool:
    """A service over fake engines, with clients that have a desktop each."""

    def __init__(self, fakes, engines, *, clients=1, router=None, **options):
        self.fakes = fakes
        self.engines = engines
        self.recorder = fakes.recorder(clients, len(engines))
        self.service = RolloutService(
            engines,
            weights=Weights(0),
            router=router or LeastInFlight(),
            config=fakes.sync_config(**options),
            recorder=self.recorder,
        )
        self.sessions = [
            self.service.session(fakes.attempt(number), self.recorder.desktops.tracks[number])
            for number in range(clients)
        ]
        self.sync = asyncio.get_running_loop().create_task(self.service.run())

    async def ask(self, client=0, turn=0):
        self.recorder.desktops.tracks[client].enter(DesktopState.GENERATING)
        request = Request(self.fakes.attempt(client), turn, self.fakes.SEEN, [])
        reply = await self.sessions[client].generate(request)
        self.recorder.desktops.tracks[client].enter(DesktopState.ACTING)
        return reply, self.fakes.now()

    def asking(self, client=0):
        return asyncio.get_running_loop().create_task(self.ask(client))


async def test_a_request_is_answered_and_counted(fakes):
    pool = Pool(fakes, fakes.engines(1))
    reply, when = await pool.ask()
    assert (reply.action, reply.version, reply.worker, when) == ("act", 0, 0, 3.0)
    hot = pool.recorder.hot
    assert (hot.generated_turns, hot.prompt_tokens, hot.response_tokens) == (1, 100, 10)
    assert (hot.cached_tokens, hot.looked_up_tokens) == (0, 0), "this engine does not say what it found in a cache"
    assert pool.service.workers[0].in_flight == 0


async def test_a_worker_is_busy_while_it_has_a_request(fakes):
    pool = Pool(fakes, fakes.engines(1), clients=2)
    first = pool.asking(0)
    await asyncio.sleep(1.0)
    await pool.ask(1)
    await asyncio.sleep(2.0)
    await first
    assert fakes.spent(pool.recorder.engines) == {"BUSY": 4.0, "IDLE": 2.0}


@pytest.mark.parametrize("router", [LeastInFlight, SessionAffine])
async def test_a_fault_of_a_worker_is_retried_on_another_one(fakes, router):
    engines = fakes.engines(3)
    engines[0].faults = iter([True] * 100)
    pool = Pool(fakes, engines, clients=3, router=router())
    for _ in range(3):
        replies = await asyncio.gather(*(pool.ask(client) for client in range(3)))
        assert {reply.worker for reply, _ in replies} <= {1, 2}
    assert pool.recorder.counts["fault/request_worker"] > 0
    assert pool.recorder.hot.generated_turns == 9


async def test_after_the_last_try_the_fault_is_the_caller_s(fakes):
    engines = fakes.engines(2, faults=[True] * 100)
    pool = Pool(fakes, engines, max_tries=5)
    with pytest.raises(WorkerFault):
        await pool.ask()
    assert pool.recorder.counts["fault/request_worker"] == 5
    assert pool.recorder.hot.generated_turns == 0
    assert [worker.in_flight for worker in pool.service.workers] == [0, 0]


async def test_a_cancelled_request_leaves_its_worker(fakes):
    engines = fakes.engines(1)
    pool = Pool(fakes, engines)
    asking = pool.asking()
    await asyncio.sleep(1.0)
    asking.cancel()
    await asyncio.wait([asking])
    assert (engines[0].live, pool.service.workers[0].in_flight) == ({}, 0)
    await asyncio.sleep(1.0)
    assert fakes.spent(pool.recorder.engines) == {"BUSY": 1.0, "IDLE": 1.0}


async def test_drained_requests_finish_and_later_ones_wait(fakes):
    """One worker: a request from 0 to 3, a publication at 1, a load from 3 to 13, a request from 2 to 16."""
    pool = Pool(fakes, fakes.engines(1), clients=2, mode="drain")
    first = pool.asking(0)
    await asyncio.sleep(1.0)
    pool.service.publish(Weights(1))
    await asyncio.sleep(1.0)
    second = pool.asking(1)
    (reply_a, when_a), (reply_b, when_b) = await first, await second
    assert (reply_a.version, when_a) == (0, 3.0)
    assert (reply_b.version, reply_b.oldest_version, when_b) == (1, 1, 16.0)
    assert pool.engines[0].loads == [(3.0, 13.0, 1)]
    assert fakes.spent(pool.recorder.engines) == {"BUSY": 1.0 + 3.0, "DRAINING": 2.0, "LOADING": 10.0}
    assert not [name for name in pool.recorder.counts if name.startswith("fault")]


async def test_kept_requests_go_on_under_the_new_weights(fakes):
    pool = Pool(fakes, fakes.engines(1), mode="keep")
    asking = pool.asking()
    await asyncio.sleep(1.0)
    pool.service.publish(Weights(1))
    reply, when = await asking
    assert (reply.oldest_version, reply.version, when) == (0, 1, 13.0)
    assert pool.engines[0].loads == [(1.0, 11.0, 1)]
    assert fakes.spent(pool.recorder.engines) == {"BUSY": 3.0, "LOADING": 10.0}
    assert not [name for name in pool.recorder.counts if name.startswith("fault")]


async def test_requests_killed_by_a_restart_are_asked_again_and_counted(fakes):
    engines = fakes.engines(2)
    pool = Pool(fakes, engines, clients=2, mode="restart")
    asking = [pool.asking(0), pool.asking(1)]
    await asyncio.sleep(1.0)
    pool.service.publish(Weights(1))
    (reply_a, when_a), (reply_b, when_b) = [await each for each in asking]
    # Worker 0 restarts at 1 and its request goes to worker 1; worker 1 restarts at 11, when both are gone.
    assert (reply_a.worker, reply_a.version, when_a) == (1, 0, 4.0)
    assert (reply_b.worker, reply_b.version, when_b) == (1, 0, 3.0)
    assert pool.recorder.counts["fault/request_restarted"] == 1 == engines[0].killed
    await pool.service.settled(1)
    assert fakes.now() == 21.0


async def test_a_restart_of_all_workers_at_once_lets_requests_wait(fakes):
    engines = fakes.engines(2)
    pool = Pool(fakes, engines, clients=2, mode="restart", workers_at_a_time="all")
    asking = [pool.asking(0), pool.asking(1)]
    await asyncio.sleep(1.0)
    pool.service.publish(Weights(1))
    replies = [await each for each in asking]
    assert [(reply.version, when) for reply, when in replies] == [(1, 14.0), (1, 14.0)]
    assert pool.recorder.counts["fault/request_restarted"] == 2
    assert fakes.spent(pool.recorder.desktops) == {"GENERATING": 2 * (1.0 + 3.0), "SYNC_WAIT": 2 * 10.0}


async def test_waiting_for_a_pool_that_is_stopped_is_counted_apart(fakes):
    """Kept requests and new ones alike wait from 1 to 11, while every worker loads."""
    pool = Pool(fakes, fakes.engines(2), clients=3, mode="keep", workers_at_a_time="all")
    asking = [pool.asking(0), pool.asking(1)]
    await asyncio.sleep(1.0)
    pool.service.publish(Weights(1))
    await asyncio.sleep(4.0)
    asking.append(pool.asking(2))
    assert [when for _, when in [await each for each in asking]] == [13.0, 13.0, 14.0]
    # Client 2 begins at 5; clients 0 and 1 are done at 13 and act from then on.
    spent = fakes.spent(pool.recorder.desktops)
    assert spent == {"GENERATING": 2 * 3.0 + 3.0, "SYNC_WAIT": 2 * 10.0 + 6.0, "ACTING": 2 * 1.0, "OFF": 5.0}


async def test_while_one_worker_serves_the_pool_is_not_stopped(fakes):
    pool = Pool(fakes, fakes.engines(2), clients=2, mode="keep", workers_at_a_time=1)
    asking = [pool.asking(0), pool.asking(1)]
    await asyncio.sleep(1.0)
    pool.service.publish(Weights(1))
    assert [when for _, when in [await each for each in asking]] == [13.0, 3.0]
    assert "SYNC_WAIT" not in fakes.spent(pool.recorder.desktops)


async def test_a_request_that_waits_for_the_pool_can_be_cancelled(fakes):
    pool = Pool(fakes, fakes.engines(1), clients=2)
    pool.service.publish(Weights(1))
    await asyncio.sleep(1.0)
    asking = [pool.asking(0), pool.asking(1)]
    await asyncio.sleep(1.0)
    asking[0].cancel()
    reply, when = await asking[1]
    assert (reply.version, when) == (1, 13.0)
    assert asking[0].cancelled()
    assert pool.service.workers[0].in_flight == 0


async def test_a_worker_that_is_up_for_an_instant_only_is_not_asked(fakes):
    pool = Pool(fakes, fakes.engines(1))
    worker = pool.service.workers[0]
    pool.service.take_down(worker)
    asking = pool.asking()
    await asyncio.sleep(1.0)
    pool.service.bring_up(worker)
    pool.service.take_down(worker)
    await asyncio.sleep(5.0)
    assert pool.engines[0].live == {}
    pool.service.bring_up(worker)
    assert (await asking)[1] == 6.0 + 3.0
