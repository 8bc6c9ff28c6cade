"""``Lender``: GPUs of a trainer that waits are engines' until enough groups are ready, and nobody's in between."""

import asyncio
from collections import Counter
from functools import partial

import pytest

from dartsim.core.errors import PlugInFailed, WorkerFault
from dartsim.core.types import Batch, Weights
from dartsim.observe import EngineState, TrainerState
from dartsim.rollout import Lender, RolloutService
from dartsim.rollout.lending import Cycle, LendingRule
from dartsim.rollout.lending.by_share import ByShare
from dartsim.rollout.routers.least_in_flight import LeastInFlight

BATCH, UPDATES = 2, 2


class At(LendingRule):
    """Lends until so many groups are ready."""

    def __init__(self, groups):
        self.groups = groups
        self.cycles = []

    def recall_at(self, cycle):
        self.cycles.append(cycle)
        return self.groups


class Source:
    """A source of batches whose groups become ready when a test says so."""

    def __init__(self):
        self.num_ready = 0
        self.calls = Counter()
        self._more = asyncio.Condition()

    async def add(self, groups):
        async with self._more:
            self.num_ready += groups
            self._more.notify_all()

    async def enough(self, groups):
        async with self._more:
            await self._more.wait_for(lambda: self.num_ready >= groups)

    async def next_batch(self):
        await self.enough(BATCH)
        self.num_ready -= BATCH
        return Batch(1, 0, ())

    def trained(self, batch, result):
        self.calls["trained"] += 1

    def release(self, batch, *, drop=None):
        self.calls["release"] += 1

    def published(self, version):
        self.calls["published"] += 1


class Rig:
    """A pool of two engines, of which the second is on the trainer's GPU."""

    def __init__(self, fakes, rule=None, *, mode="restart", **options):
        self.fakes = fakes
        self.engines = fakes.engines(2, **options)
        self.recorder = fakes.recorder(num_workers=2)
        self.rule = rule or At(4)
        self.source = Source()
        config = fakes.sync_config(mode=mode)
        self.pool = RolloutService(
            self.engines, weights=Weights(0), router=LeastInFlight(), config=config, recorder=self.recorder, lent=1
        )
        self.engines[1].state = "released"
        self.lender = Lender(
            self.source, self.pool, self.rule, self.recorder, batch_groups=BATCH, publish_every=UPDATES
        )
        self.syncing = asyncio.create_task(self.pool.run())

    @property
    def states(self):
        engine, trainer = self.recorder.engines.tracks[1], self.recorder.trainer.tracks[0]
        return EngineState(engine.state), TrainerState(trainer.state)

    def ask(self):
        """Ask for a batch, as a trainer does."""
        self.recorder.trainer.tracks[0].enter(TrainerState.WAIT_DATA)
        return asyncio.create_task(self.lender.next_batch())

    def send(self):
        """Send the request of a new attempt."""
        session = self.pool.session(self.fakes.attempt(), self.recorder.desktops.tracks[0])
        return asyncio.create_task(session.generate(None))


@pytest.fixture
def rig(fakes):
    return partial(Rig, fakes)


async def test_the_gpu_is_an_engine_s_until_enough_groups_are_ready_and_back_before_the_batch(rig):
    lending = rig()
    began, asked = lending.fakes.now(), lending.ask()
    await asyncio.sleep(5.0)
    assert lending.states == (EngineState.LOADING, TrainerState.LENT)
    await asyncio.sleep(6.0)
    assert lending.states == (EngineState.IDLE, TrainerState.LENT)
    busy = [lending.send() for _ in range(2)]
    assert [(await reply).worker for reply in busy] == [0, 1]
    await lending.source.add(3)
    await asyncio.sleep(5.0)
    assert lending.states[1] is TrainerState.LENT  # a batch would be there, the rule waits for more
    recalled = lending.fakes.now()
    await lending.source.add(1)
    await asked
    assert lending.fakes.now() == recalled + 2.0
    assert lending.states == (EngineState.OFF, TrainerState.WAIT_DATA)
    assert [reply.worker for reply in [await lending.send() for _ in range(2)]] == [0, 0]
    assert recalled - began == 19.0


async def test_it_is_lent_once_a_publication_with_what_the_last_cycle_cost(rig):
    lending = rig()
    asked = lending.ask()
    await asyncio.sleep(20.0)
    await lending.source.add(4)
    await asked
    await lending.lender.next_batch()
    waiting = lending.ask()  # the third batch of a cycle of two, as after an update that failed
    await asyncio.sleep(7.0)
    assert lending.states[1] is TrainerState.WAIT_DATA
    await lending.source.add(2)
    await waiting
    lending.lender.published(1)
    await lending.source.add(4)
    await lending.lender.next_batch()
    first, second = lending.rule.cycles
    assert first == Cycle(0, 0, BATCH * UPDATES)
    assert second == Cycle(1, 4, BATCH * UPDATES, waited_groups=2, waited_seconds=7.0, switch_seconds=12.0)
    assert lending.recorder.counts["lendings"] == 1  # four groups were ready already


async def test_enough_groups_while_the_engine_still_loads_end_the_load(rig):
    lending = rig(load_seconds=100.0)
    asked = lending.ask()
    await asyncio.sleep(50.0)
    await lending.source.add(4)
    await asked
    assert lending.engines[1].state == "released"
    assert lending.states == (EngineState.OFF, TrainerState.WAIT_DATA)
    assert lending.pool.router.num_routable == 1


@pytest.mark.parametrize(("mode", "seconds", "killed", "worker"), [("drain", 32.0, 0, 1), ("restart", 2.0, 1, 0)])
async def test_a_live_request_ends_first_or_moves_as_when_weights_change(rig, mode, seconds, killed, worker):
    lending = rig(mode=mode, seconds=40.0)
    asked = lending.ask()
    await asyncio.sleep(11.0)
    requests = [lending.send() for _ in range(2)]
    await asyncio.sleep(10.0)
    recalled = lending.fakes.now()
    await lending.source.add(4)
    late = lending.send()  # an update is ready while the engine drains: no new request goes there
    await asked
    assert lending.fakes.now() - recalled == seconds
    assert lending.engines[1].killed == killed
    assert (await requests[1]).worker == worker
    assert (await late).worker == 0


async def test_a_lent_engine_that_dies_returns_only_when_it_is_lent_again(rig):
    lending = rig()
    asked, alive = lending.ask(), asyncio.Event()
    await asyncio.sleep(11.0)
    fault = WorkerFault("its process ended")
    fault.back = alive.wait
    lending.pool.remove_from_rotation(lending.pool.workers[1], fault)
    assert lending.states[0] is EngineState.DOWN
    await lending.source.add(4)
    await asked
    assert lending.states[0] is EngineState.OFF
    alive.set()
    await asyncio.sleep(60.0)
    assert lending.pool.router.num_routable == 1
    lending.source.num_ready = 0
    lending.lender.published(1)
    again = lending.ask()
    await asyncio.sleep(11.0)
    assert lending.states == (EngineState.IDLE, TrainerState.LENT)
    again.cancel()


async def test_loads_that_fail_are_tried_again_while_it_is_lent(rig):
    lending = rig()
    lending.engines[1].load_faults = iter([True, True])
    asked = lending.ask()
    await asyncio.sleep(60.0)
    assert lending.states == (EngineState.IDLE, TrainerState.LENT)
    await lending.source.add(4)
    await asked
    assert lending.recorder.counts["fault/load"] == 2


async def test_an_engine_that_cannot_give_its_gpu_back_is_counted_and_training_goes_on(rig):
    lending = rig()

    async def fails():
        raise WorkerFault("it does not end")

    lending.engines[1].release = fails
    asked = lending.ask()
    await asyncio.sleep(11.0)
    await lending.source.add(4)
    await asked
    assert lending.recorder.counts["fault/release"] == 1
    assert lending.recorder.engine_faults[1] == "it does not end"
    assert lending.states[0] is EngineState.OFF


async def test_a_run_that_ends_while_its_gpus_are_lent_ends(rig):
    lending = rig()
    for seconds in (5.0, 20.0):
        asked = lending.ask()
        await asyncio.sleep(seconds)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_it_waits_for_no_more_groups_than_a_cycle_has(rig):
    lending = rig(At(1000))
    asked = lending.ask()
    await lending.source.add(BATCH * UPDATES)
    await asked


async def test_a_rule_that_says_no_number_is_named(rig):
    with pytest.raises(PlugInFailed, match=r"At\.recall_at returned 'soon', wanted a number"):
        await rig(At("soon")).lender.next_batch()


def by_share(**parameters):
    return ByShare(ByShare.Parameters(**parameters))


def test_the_share_follows_the_waits():
    rule = by_share(share=0.4, step_down=0.03)
    assert rule.recall_at(Cycle(0, 0, 100)) == 40
    assert rule.recall_at(Cycle(1, 0, 100, waited_groups=10, waited_seconds=500.0)) == 45
    assert rule.recall_at(Cycle(2, 0, 100)) == 42
    for number in range(3, 60):
        assert rule.recall_at(Cycle(number, 0, 100)) >= 0
    assert rule.recall_at(Cycle(60, 0, 100)) == 0


def test_it_lends_only_if_the_lacking_groups_take_longer_than_the_switch():
    rule = by_share(share=0.45, step_down=0.0)
    slow = Cycle(1, 45, 100, waited_groups=10, waited_seconds=100.0, switch_seconds=90.0)
    assert rule.recall_at(slow) == 0  # five groups take 50 s
    assert rule.recall_at(Cycle(2, 40, 100, switch_seconds=10.0)) == 50  # ten take 100 s; switches took 50 s
    assert rule.recall_at(Cycle(3, 45, 100, switch_seconds=10.0)) == 50  # five take 50 s; switches took 37 s
    assert rule.recall_at(Cycle(4, 60, 100)) == 0
