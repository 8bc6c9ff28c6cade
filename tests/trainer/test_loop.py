"""The training loop: its order, its waits, and what happens to a batch whose update fails."""

import asyncio
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import BatchUntrainable, LearnerFault, UpdateUncertain
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.observe import Recorder, TrainerState
from dartsim.sim import run_virtual
from dartsim.trainer import Trainer


def now():
    return asyncio.get_running_loop().time()


class World:
    """A source, a publisher and a learner in one, which write down what is asked of them and when.

    Args:
        batches: How many there are.
        failing: Of each update, in order, whether it fails; then none does.
        seconds: Of an update.
        settle_seconds: Until all workers have what was published.
        error: What a failing update raises.
    """

    def __init__(self, batches=1, *, failing=(), seconds=100.0, settle_seconds=30.0, error=None, **options):
        self.events = []
        self.queue = [Batch(number, number - 1, ()) for number in range(1, batches + 1)]
        self.failing = iter(failing)
        self.seconds = seconds
        self.settle_seconds = settle_seconds
        self.error = error or LearnerFault("out of memory")
        self.published_at = {}
        self.recorder = Recorder(asyncio.get_running_loop().time, num_envs=1, num_engines=1)
        self.trainer = Trainer(self, source=self, publisher=self, recorder=self.recorder, **options)

    def note(self, what, number):
        self.events.append((now(), what, number))

    # source
    async def next_batch(self):
        if not self.queue:
            return None
        self.note("batch", self.queue[0].update)
        return self.queue.pop(0)

    def trained(self, batch, result):
        assert result.weights.version == batch.update
        self.note("trained", batch.update)

    def release(self, batch, *, drop=None):
        self.note("release" if drop is None else f"drop {drop}", batch.update)
        if drop is None:
            self.queue.insert(0, batch)

    def published(self, version):
        self.note("published", version)

    # learner
    async def update(self, batch):
        await asyncio.sleep(self.seconds)
        if next(self.failing, False):
            raise self.error
        return UpdateResult(Weights(batch.update))

    # publisher
    def publish(self, weights):
        self.published_at[weights.version] = now()
        self.note("publish", weights.version)

    async def settled(self, version):
        await asyncio.sleep(self.published_at[version] + self.settle_seconds - now())

    def spent(self):
        seconds = self.recorder.trainer.seconds()
        return {state.name: seconds[state] for state in self.recorder.trainer.states if seconds[state]}


async def test_batches_are_trained_published_and_counted_on_in_this_order():
    world = World(2)
    await world.trainer.run()
    assert world.events == [
        (0.0, "batch", 1),
        (100.0, "trained", 1),
        (100.0, "publish", 1),
        (100.0, "published", 1),
        (100.0, "batch", 2),
        (200.0, "trained", 2),
        (200.0, "publish", 2),
        (200.0, "published", 2),
    ]
    await asyncio.sleep(7.0)
    assert world.spent() == {"TRAINING": 200.0, "OFF": 7.0}


async def test_a_coupled_trainer_waits_until_all_workers_have_the_weights():
    world = World(2, wait_for_sync=True)
    await world.trainer.run()
    assert [event for event in world.events if event[1] in ("batch", "publish", "published")] == [
        (0.0, "batch", 1),
        (100.0, "publish", 1),
        (130.0, "published", 1),
        (130.0, "batch", 2),
        (230.0, "publish", 2),
        (260.0, "published", 2),
    ]
    assert world.spent() == {"TRAINING": 200.0, "WAIT_SYNC": 60.0}


async def test_weights_that_are_held_back_are_no_weight_change():
    world = World(2, before_publication=lambda: asyncio.sleep(20.0))
    await world.trainer.run()
    assert [event for event in world.events if event[1] == "publish"] == [(120.0, "publish", 1), (240.0, "publish", 2)]
    assert world.spent() == {"TRAINING": 200.0, "WAIT_PUBLISH": 40.0}
    world = World(2, before_publication=lambda: asyncio.sleep(20.0), wait_state=TrainerState.WAIT_DATA)
    await world.trainer.run()
    assert world.spent() == {"TRAINING": 200.0, "WAIT_DATA": 40.0}


async def test_waiting_for_a_batch_is_counted():
    world = World(0)

    async def late():
        await asyncio.sleep(40.0)
        return None

    world.next_batch = late
    await world.trainer.run()
    assert world.spent() == {"WAIT_DATA": 40.0}


async def test_a_failed_update_returns_its_batch_at_once_and_is_tried_again_after_a_doubling_wait():
    world = World(1, failing=[True, True])
    await world.trainer.run()
    assert world.events == [
        (0.0, "batch", 1),
        (100.0, "release", 1),
        (110.0, "batch", 1),
        (210.0, "release", 1),
        (230.0, "batch", 1),
        (330.0, "trained", 1),
        (330.0, "publish", 1),
        (330.0, "published", 1),
    ]
    assert world.recorder.counts["fault/update"] == 2
    assert world.spent() == {"TRAINING": 300.0, "DOWN": 30.0}


async def test_a_batch_whose_answer_was_lost_is_kept_and_asked_for_again():
    world = World(1, failing=[True, True], error=UpdateUncertain("no answer"))
    await world.trainer.run()
    assert world.events == [
        (0.0, "batch", 1),
        (330.0, "trained", 1),
        (330.0, "publish", 1),
        (330.0, "published", 1),
    ]
    assert world.recorder.counts["fault/update"] == 2
    assert world.spent() == {"TRAINING": 300.0, "DOWN": 30.0}


async def test_a_success_makes_the_next_wait_short_again():
    world = World(2, failing=[True, True, False, True], seconds=0.0)
    await world.trainer.run()
    assert [time for time, what, _ in world.events if what == "batch"] == [0.0, 10.0, 30.0, 30.0, 40.0]


async def test_after_a_bug_in_the_learner_nobody_knows_whether_the_batch_was_trained():
    world = World(1, failing=[True], error=ZeroDivisionError())
    await world.trainer.run()
    assert [what for _, what, _ in world.events][:3] == ["batch", "trained", "publish"]
    assert world.recorder.counts["fault/update"] == 1


@given(
    moment=st.one_of(st.sampled_from([0.0, 100.0, 110.0, 210.0, 240.0]), st.floats(0.0, 400.0)),
    wait_for_sync=st.booleans(),
)
def test_whenever_it_is_cancelled_no_batch_is_lost_or_trained_twice(moment, wait_for_sync):
    async def main():
        world = World(2, failing=[True], wait_for_sync=wait_for_sync)
        task = asyncio.get_running_loop().create_task(world.trainer.run())
        await asyncio.sleep(moment)
        task.cancel()
        await asyncio.wait([task])
        whats = [(what, number) for _, what, number in world.events]
        trained = [number for what, number in whats if what == "trained"]
        assert len(set(trained)) == len(trained)
        assert sorted([*trained, *(batch.update for batch in world.queue)]) == [1, 2]
        assert asyncio.get_running_loop().env.peek() == inf

    run_virtual(main())


async def test_weights_are_published_every_so_many_updates():
    world = World(batches=5, publish_every=2)
    await world.trainer.run()
    assert [number for _, what, number in world.events if what == "publish"] == [2, 4]
    assert [number for _, what, number in world.events if what == "trained"] == [1, 2, 3, 4, 5]


async def test_a_batch_that_cannot_be_trained_is_dropped_and_makes_no_version():
    world = World(2, failing=[True], error=BatchUntrainable("no log-probabilities"))
    world.queue[1] = Batch(1, 0, ())  # the next batch is for the same update
    await world.trainer.run()
    assert [event for event in world.events if event[1] != "published"] == [
        (0.0, "batch", 1),
        (100.0, "drop untrainable", 1),
        (100.0, "batch", 1),
        (200.0, "trained", 1),
        (200.0, "publish", 1),
    ]
    assert world.recorder.counts["untrainable_batches"] == 1
    assert world.recorder.counts["fault/update"] == world.trainer.failures == 0
