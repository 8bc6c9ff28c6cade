"""Worker and learner in threads of this process: conformance, batching, weights between batches, cancellation."""

import asyncio
import threading

import numpy as np
import pytest

from dartsim.core.errors import LearnerFault, WorkerFault, WorkerRestarted
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Content, Observation, Request, UpdateResult, Weights
from dartsim.real.local import LocalLearner, LocalWorker
from dartsim.testing import ports as checks

pytestmark = pytest.mark.anyio


class Policy:
    """Says its version; computes when it is let."""

    def __init__(self):
        self.versions = {0}
        self.batches = []
        self.go = threading.Event()
        self.go.set()
        self.fault = None

    def add(self, weights):
        if weights.version < 0:
            raise WorkerFault("no such weights")
        self.versions.add(weights.version)

    def compute(self, requests, version):
        assert self.go.wait(30.0)
        self.batches.append([request.attempt.id for request in requests])
        if self.fault:
            raise self.fault
        assert version in self.versions
        one = np.zeros(1)
        return [Content(f"say({version})", one, one, one) for _ in requests]

    def prompt_tokens(self, request):
        return 7


def ask(worker, number):
    request = Request(checks.sample_attempt(number), 0, Observation(None, ""), [])
    return asyncio.ensure_future(worker.generate(request))


def test_a_local_worker_keeps_what_the_port_promises():
    asyncio.run(checks.check_policy_worker(LocalWorker(0, Policy())))


async def test_what_waits_is_computed_in_one_batch():
    policy = Policy()
    worker = LocalWorker(3, policy, max_batch=4)
    policy.go.clear()
    first = ask(worker, 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [ask(worker, number) for number in range(1, 7)]
    await asyncio.sleep(0)
    others[1].cancel()
    policy.go.set()
    replies = [await future for future in (first, others[0], *others[2:])]
    assert policy.batches == [[0], [1, 3, 4, 5], [6]]
    assert {(reply.worker, reply.prompt_tokens, reply.response_tokens) for reply in replies} == {(3, 7, 1)}


@pytest.mark.parametrize("mode", [SyncMode.KEEP, SyncMode.DRAIN])
async def test_weights_change_between_batches(mode):
    policy = Policy()
    worker = LocalWorker(0, policy)
    policy.go.clear()
    computing = ask(worker, 0)
    await asyncio.sleep(0.01)
    loading = asyncio.ensure_future(worker.load(Weights(1), mode))
    await asyncio.sleep(0.01)
    waiting = ask(worker, 1)
    policy.go.set()
    await loading
    assert (await computing).action == "say(0)"
    assert (await waiting).action == "say(1)"
    assert (await waiting).version == 1


async def test_a_restart_kills_what_waits_and_what_is_computed():
    policy = Policy()
    worker = LocalWorker(0, policy)
    policy.go.clear()
    computing = ask(worker, 0)
    await asyncio.sleep(0.01)
    waiting = ask(worker, 1)
    await asyncio.sleep(0)
    loading = asyncio.ensure_future(worker.load(Weights(1), SyncMode.RESTART))
    for killed in (computing, waiting):
        with pytest.raises(WorkerRestarted):
            await killed
    policy.go.set()
    await loading
    assert (await ask(worker, 2)).version == 1


async def test_a_fault_of_the_model_reaches_every_request_and_the_worker_goes_on():
    policy = Policy()
    worker = LocalWorker(0, policy)
    policy.fault = RuntimeError("out of memory")
    for asked in (ask(worker, 0), ask(worker, 1)):
        with pytest.raises(WorkerFault, match="out of memory"):
            await asked
    policy.fault = None
    assert (await ask(worker, 2)).action == "say(0)"
    with pytest.raises(WorkerFault, match="no such weights"):
        await worker.load(Weights(-1), SyncMode.KEEP)
    assert (await ask(worker, 3)).version == 0


class Inner:
    def __init__(self, fault=None):
        self.fault = fault
        self.threads = []

    async def update(self, batch):
        self.threads.append(threading.get_ident())
        if self.fault:
            raise self.fault
        return UpdateResult(Weights(batch.update), {"loss": 1.0})


def test_a_local_learner_trains_beside_the_loop():
    inner = Inner()
    asyncio.run(checks.check_learner(LocalLearner(inner)))
    assert threading.get_ident() not in inner.threads


@pytest.mark.parametrize("fault", [LearnerFault("no turns"), RuntimeError("no turns")])
def test_a_failed_update_is_a_fault_of_the_learner(fault):
    batch = checks.sample_batch([checks.sample_trajectory(0)])
    with pytest.raises(LearnerFault, match="no turns"):
        asyncio.run(LocalLearner(Inner(fault)).update(batch))
