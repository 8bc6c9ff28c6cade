"""Models in actors: conformance, weights after a restart, requests that show no more than prompts do."""

import asyncio
from functools import partial

import numpy as np
import pytest

from dartsim.core.errors import WorkerFault, cause_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Observation, Reply, Request, Turn, Weights
from dartsim.testing import ports as checks


def make_policy():
    """Return what makes a policy that says its version; a closure, because a test's module is not on the nodes."""

    class Policy:
        def __init__(self):
            self.versions = {}

        def add(self, weights):
            from dartsim.core.errors import WorkerFault

            if weights.source == "torn":
                raise WorkerFault("torn weights")
            self.versions[weights.version] = weights.source

        def compute(self, requests, version):
            import time

            import numpy as np

            from dartsim.core.types import Content

            time.sleep(0.05)
            one = np.zeros(3)
            return [Content(f"say({self.versions[version]})", one, one, one) for _ in requests]

        def prompt_tokens(self, request):
            return 7

    return Policy


@pytest.fixture
def worker(place):
    from dartsim.real.ray_cluster.workers import RayWorker, WorkerHost

    def make(index=0, shared=None, **want):
        host = partial(WorkerHost, index, make_policy())
        part = place(f"engine-{index}", host, **want)
        return RayWorker(index, part, weights=Weights(0, "first"), shared=shared)

    return make


def ask(worker, number=0):
    request = Request(checks.sample_attempt(number), 0, Observation(None, ""), [])
    return asyncio.ensure_future(worker.generate(request))


def test_a_worker_in_an_actor_keeps_what_the_port_promises(worker):
    async def main():
        made = worker()
        await made.start()
        await checks.check_policy_worker(made, source="weights")
        reply = await ask(made)
        assert (reply.action, reply.worker, reply.response_tokens) == ("say(weights)", 0, 3)
        assert reply.tokens.flags.writeable
        made.close()

    asyncio.run(main())


def test_a_worker_whose_actor_ends_comes_back_with_the_weights_it_served(worker, end):
    async def main():
        made = worker()
        await made.start()
        await made.load(Weights(3, "third"), SyncMode.DRAIN)
        requests = [ask(made, number) for number in range(3)]
        await end(made.part)
        async with asyncio.timeout(60.0):
            for request in requests:
                with pytest.raises(WorkerFault) as fault:
                    await request
                assert cause_of(fault.value) == "engine_host_lost"
                assert fault.value.back is not None
            with pytest.raises(WorkerFault, match="is not up"):
                await ask(made)
            await fault.value.back()
            reply = await ask(made)
        assert (reply.action, reply.version) == ("say(third)", 3)
        assert made.counts == {"lost": 1, "back": 1}
        made.close()

    asyncio.run(main())


def test_new_weights_wait_for_an_actor_that_ended(worker, end):
    async def main():
        made = worker()
        await made.start()
        await end(made.part)
        async with asyncio.timeout(60.0):
            with pytest.raises(WorkerFault, match="ended under the call") as fault:
                await made.load(Weights(1, "new"), SyncMode.KEEP)
            await fault.value.back()
            assert (await ask(made)).action == "say(first)"
            await made.load(Weights(1, "new"), SyncMode.KEEP)
            assert (await ask(made)).action == "say(new)"
        await asyncio.sleep(0.2)
        assert (await ask(made)).action == "say(new)"
        assert made.version == 1
        made.close()

    asyncio.run(main())


def test_weights_that_cannot_be_loaded_are_a_fault_of_the_load(worker):
    async def main():
        made = worker()
        await made.start()
        with pytest.raises(WorkerFault, match="torn weights") as fault:
            await made.load(Weights(1, "torn"), SyncMode.DRAIN)
        assert fault.value.back is None
        made.close()

    asyncio.run(main())


def test_an_actor_that_is_not_started_again_ends_whoever_waits(worker, end):
    from dartsim.real.ray_cluster.errors import PartGone

    async def main():
        made = worker(restarts=0)
        await made.start()
        await end(made.part)
        async with asyncio.timeout(60.0):
            with pytest.raises(WorkerFault) as fault:
                await ask(made)
            with pytest.raises(PartGone):
                await fault.value.back()
            with pytest.raises(WorkerFault):
                await made.load(Weights(1, "new"), SyncMode.DRAIN)

    asyncio.run(main())


@pytest.mark.soak
def test_a_pool_goes_on_without_a_worker_that_is_gone(worker, end):
    from dartsim.real.ray_cluster.errors import PartGone
    from dartsim.real.ray_cluster.workers import Shared

    async def main():
        shared = Shared()
        first, second = (worker(index, shared, restarts=0) for index in range(2))
        await asyncio.gather(first.start(), second.start())
        waiting = []
        for made in (first, second):
            assert not any(wait.done() for wait in waiting)
            await end(made.part)
            with pytest.raises(WorkerFault) as fault:
                await ask(made)
            waiting.append(asyncio.ensure_future(fault.value.back()))
        async with asyncio.timeout(60.0):
            for wait in waiting:
                with pytest.raises(PartGone):
                    await wait

    asyncio.run(main())


def test_older_screenshots_stay_here():
    from dartsim.real.ray_cluster.workers import trimmed

    reply = Reply("WAIT", 0, 0, 0, 1, 1)
    history = [Turn(Observation(np.full((2, 2, 3), n, np.uint8), "do"), reply) for n in range(4)]
    request = Request(checks.sample_attempt(), 4, Observation(None, "do"), history)
    shown = [turn.observation.screenshot is not None for turn in trimmed(request, 3).history]
    assert shown == [False, False, True, True]
    assert trimmed(request, 1).history[-1].observation.screenshot is None
    assert trimmed(request, None) is request
    assert [turn.observation.screenshot is None for turn in history] == [False] * 4
