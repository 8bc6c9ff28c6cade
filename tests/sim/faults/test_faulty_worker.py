"""Workers and a trainer that faults strike: what runs is lost, what was done is not done again, all come back."""

import asyncio
from dataclasses import dataclass

import pytest

from dartsim.core.errors import LearnerFault, StoreFault, StoreFull, UpdateUncertain, WorkerFault, cause_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Observation, Request, UpdateResult, Weights
from dartsim.sim.faults.faulty_cluster import FaultyStore
from dartsim.sim.faults.faulty_learner import FaultyLearner
from dartsim.sim.faults.faulty_network import FaultyNetwork, pairs
from dartsim.sim.faults.faulty_worker import FaultyWorker
from dartsim.sim.faults.injector import CONTROL, LEARNER
from dartsim.sim.learner import SimLearner, UpdateTokens
from dartsim.sim.measured_engines import SharedEngine
from dartsim.sim.prompts import PromptModel
from dartsim.sim.worker import SimWorker
from dartsim.testing.ports import sample_attempt


def now():
    return asyncio.get_running_loop().time()


class Policy:
    def act(self, request):
        return "act"


def ask(number=0, turn=0):
    return Request(sample_attempt(number), turn, Observation(None, "do"), [])


@pytest.fixture
def worker(make, at):
    """A worker that takes 10 s for a reply and 20 s for a load."""

    def made(*strikes, **fields):
        faults = make(**at(*strikes), **fields)
        engine = SharedEngine(faults.env, alone_seconds=10.0, beside_seconds=0.0)
        inner = SimWorker(
            0,
            engine,
            prompts=PromptModel(),
            policy=Policy(),
            reply_tokens=lambda: 10,
            reload_seconds=lambda: 20.0,
            prefix_cache=False,
        )
        return FaultyWorker(inner, faults, FaultyNetwork(faults)), faults

    return made


async def failing(call):
    with pytest.raises(WorkerFault) as failed:
        await call
    return failed.value


async def test_a_crash_fails_what_runs_at_once_and_says_when_the_worker_is_back(worker):
    struck, faults = worker(("worker_crash", 4.0, 60.0))
    live = await failing(struck.generate(ask()))
    assert (cause_of(live), now(), struck.engine.num_jobs) == ("engine_died", 4.0, 0)
    refused = await failing(struck.generate(ask()))
    assert (cause_of(refused), now()) == ("engine_refused", 4.0)
    await asyncio.gather(live.back(), refused.back())
    assert now() == 64.0
    assert (await struck.generate(ask())).action == "act"
    assert (faults.counts["fault/worker_crash"], faults.counts["fault_seconds/worker_crash"]) == (1, 60.0)


async def test_a_crash_during_a_load_fails_it_and_the_old_weights_stay(worker):
    struck, _ = worker(("worker_crash", 4.0, 60.0))
    fault = await failing(struck.load(Weights(1), SyncMode.KEEP))
    assert (cause_of(fault), fault.back is not None, struck.version) == ("engine_died", True, 0)
    await failing(struck.load(Weights(1), SyncMode.KEEP))
    await fault.back()
    await struck.load(Weights(1), SyncMode.KEEP)
    assert struck.version == 1
    assert (await struck.generate(ask())).version == 1


async def test_a_torn_load_is_not_served_and_can_be_tried_again(worker):
    struck, _ = worker(("weights_torn", 0.0))
    fault = await failing(struck.load(Weights(1), SyncMode.DRAIN))
    assert (cause_of(fault), fault.back, struck.version, now()) == ("weights_torn", None, 0, 20.0)
    await struck.load(Weights(1), SyncMode.DRAIN)
    assert struck.version == 1


async def test_a_hung_load_stays_until_it_is_given_up(worker):
    struck, _ = worker(("load_hung", 0.0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(300.0):
            await struck.load(Weights(1), SyncMode.DRAIN)
    await struck.load(Weights(1), SyncMode.DRAIN)
    assert now() == 320.0


async def test_a_hung_request_fails_after_the_client_s_time_out_and_others_go_on(worker):
    struck, _ = worker(("request_hung", 0.0))
    hung = asyncio.ensure_future(failing(struck.generate(ask())))
    await asyncio.sleep(0.0)
    assert (await struck.generate(ask(1))).action == "act"
    assert now() == 10.0
    assert cause_of(await hung) == "engine_hung"
    assert now() == 300.0


async def test_a_full_cache_throws_out_what_runs_and_takes_nothing_for_a_while(worker):
    struck, _ = worker(("out_of_kv_memory", 4.0, 30.0))
    fault = await failing(struck.generate(ask()))
    assert (cause_of(fault), fault.back, now()) == ("engine_aborted", None, 4.0)
    assert cause_of(await failing(struck.generate(ask()))) == "engine_aborted"
    assert now() == 6.0, "it says no after a while, not at once: retries would follow each other in no time"
    await asyncio.sleep(30.0)
    assert (await struck.generate(ask())).action == "act"


async def test_a_slow_worker_takes_some_times_as_long(worker):
    struck, faults = worker(("worker_slow", 0.0, 100.0))
    await struck.generate(ask())
    assert now() == pytest.approx(10.0 * faults.window_fault("worker_slow", 0).value)


async def test_a_worker_that_is_cut_off_is_asked_in_vain(worker):
    struck, faults = worker(("network_partition", 0.0, 1000.0, 2))
    assert pairs(faults)[2] == (CONTROL, "worker-0")
    assert cause_of(await failing(struck.generate(ask()))) == "engine_hung"
    assert now() == 300.0


async def test_weights_wait_for_the_way_to_the_learner(worker):
    struck, faults = worker(("network_partition", 0.0, 100.0, 6))
    assert pairs(faults)[6] == (LEARNER, "worker-0")
    assert (await struck.generate(ask())).action == "act"
    await struck.load(Weights(1), SyncMode.DRAIN)
    assert now() == 120.0 + 10.0 - 10.0


@dataclass(frozen=True)
class Batch:
    update: int
    groups: tuple = ()


class Counted:
    """Makes weights, and counts for which updates."""

    def __init__(self):
        self.made = []

    async def update(self, batch):
        self.made.append(batch.update)
        return UpdateResult(Weights(batch.update))


@pytest.fixture
def learner(make, at):
    """A trainer that takes 100 s for an update."""

    def made(*strikes, **fields):
        faults, inner = make(**at(*strikes), **fields), Counted()
        trainer = SimLearner(
            inner, UpdateTokens(PromptModel(), packed=False), fixed_seconds=100.0, kilotoken_seconds=0.0
        )
        return FaultyLearner(trainer, faults, FaultyNetwork(faults)), inner, faults

    return made


async def updating(call, error=LearnerFault):
    with pytest.raises(error) as failed:
        await call
    assert type(failed.value) is error
    return cause_of(failed.value)


async def test_a_crash_before_the_commit_did_not_happen(learner):
    struck, inner, faults = learner(("trainer_crash_before_commit", 0.0, 60.0))
    assert await updating(struck.update(Batch(1))) == "trainer_crash_before_commit"
    assert 0.0 < (crashed := now()) < 100.0
    assert inner.made == []
    assert await updating(struck.update(Batch(1))) == "trainer_crash_before_commit"  # still down, at once
    assert now() == crashed
    await asyncio.sleep(60.0)
    assert (await struck.update(Batch(1))).weights.version == 1
    assert faults.counts["fault/trainer_crash_before_commit"] == 1


async def test_half_a_checkpoint_is_none(learner):
    struck, inner, _ = learner(("trainer_crash_during_commit", 0.0, 60.0))
    assert await updating(struck.update(Batch(1))) == "trainer_crash_during_commit"
    assert (inner.made, now()) == ([], 100.0)


async def test_an_update_that_nobody_heard_of_is_answered_and_not_done_again(learner):
    struck, inner, _ = learner(("trainer_crash_after_commit", 0.0, 60.0))
    assert await updating(struck.update(Batch(1)), UpdateUncertain) == "trainer_crash_after_commit"
    assert (inner.made, now()) == ([1], 100.0)
    assert await updating(struck.update(Batch(1)), UpdateUncertain) == "trainer_crash_after_commit"
    await asyncio.sleep(60.0)
    assert (await struck.update(Batch(1))).weights.version == 1
    assert (inner.made, now()) == ([1], 160.0)
    assert (await struck.update(Batch(2))).weights.version == 2
    assert inner.made == [1, 2]


async def test_an_outage_ends_an_update_and_lasts(learner):
    struck, inner, faults = learner(("trainer_outage", 40.0, 3600.0))
    assert await updating(struck.update(Batch(1))) == "trainer_outage"
    assert (now(), inner.made) == (40.0, [])
    assert await updating(struck.update(Batch(1))) == "trainer_outage"
    await asyncio.sleep(3600.0)
    await struck.update(Batch(1))
    assert (now(), inner.made) == (3740.0, [1])
    assert (faults.counts["fault/trainer_outage"], faults.counts["fault_seconds/trainer_outage"]) == (1, 3600.0)


async def test_without_room_for_its_checkpoint_an_update_did_not_happen(learner):
    struck, inner, _ = learner(("disk_full", 0.0, 150.0))
    assert await updating(struck.update(Batch(1))) == "disk_full"
    assert (now(), inner.made) == (100.0, [])
    await asyncio.sleep(50.0)
    await struck.update(Batch(1))
    assert inner.made == [1]


async def test_a_full_store_says_so_and_passes_everything_else_on(make, at):
    class Store:
        kept = 0
        leased = None

        def record(self, trajectory):
            self.kept += 1

        def lease(self, batch):
            self.leased = batch

    faults = make(**at(("store_full", 0.0, 60.0)))
    inner = Store()
    store = FaultyStore(inner, faults)
    attempt = type("T", (), {"attempt": sample_attempt(3)})
    with pytest.raises(StoreFull, match="attempt 3 cannot be kept"):
        store.record(attempt)
    store.lease("batch")
    assert inner.leased == "batch"
    await asyncio.sleep(60.0)
    store.record(attempt)
    assert inner.kept == 1


async def test_a_reply_that_is_lost_was_computed(worker):
    faulty, _ = worker(("reply_lost", 0.0, 50.0))
    assert cause_of(await failing(faulty.generate(ask()))) == "engine_hung"
    assert (now(), faulty.engine.num_jobs) == (60.0, 0)
    assert (await faulty.generate(ask())).action == "act"


async def test_a_load_that_fails_at_its_end_leaves_the_old_weights_and_has_no_cause(worker):
    faulty, _ = worker(("load_failed", 0.0))
    fault = await failing(faulty.load(Weights(1), SyncMode.DRAIN))
    assert (cause_of(fault), faulty.version, now()) == ("WorkerFault", 0, 20.0)


async def test_a_load_that_is_refused_leaves_the_engine_as_it_was(worker):
    faulty, _ = worker(("load_refused", 0.0))
    fault = await failing(faulty.load(Weights(1), SyncMode.KEEP))
    assert (cause_of(fault), faulty.version, now()) == ("weights_refused", 0, 1.0)
    assert (await faulty.generate(ask())).version == 0


async def test_an_update_that_fails_did_not_happen_and_the_trainer_is_there_at_once(learner):
    faulty, inner, _ = learner(("update_failed", 0.0))
    assert await updating(faulty.update(Batch(1))) == "LearnerFault"
    assert 0.0 < (failed := now()) < 100.0
    await faulty.update(Batch(1))
    assert (inner.made, now()) == ([1], failed + 100.0)


async def test_an_update_that_is_slow_takes_longer(learner):
    faulty, inner, _ = learner(("update_slow", 0.0, 60.0))
    await faulty.update(Batch(1))
    assert (inner.made, now()) == ([1], 160.0)


async def test_a_store_that_refuses_a_transaction_says_so_once(make, at):
    class Store:
        def record(self, trajectory):
            return None

    store = FaultyStore(Store(), make(**at(("store_error", 0.0))))
    attempt = type("T", (), {"attempt": sample_attempt(3)})
    with pytest.raises(StoreFault, match="attempt 3 cannot be kept"):
        store.record(attempt)
    store.record(attempt)
