"""A step after an update that fails is done again, and the batch is not trained a second time."""

import asyncio
import errno
import os
from dataclasses import replace

import pytest

from dartsim.core.errors import LearnerFault, UpdateUncertain
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.real.local import LocalLearner
from dartsim.trainer.update_steps import LearnerWithSteps, UpdateStep


class Counting:
    """A learner that counts, and fails once if it is told to."""

    def __init__(self, failing=()):
        self.failing = list(failing)
        self.trained = []

    async def update(self, batch):
        if batch.update in self.failing:
            self.failing.remove(batch.update)
            raise LearnerFault("scripted")
        self.trained.append(batch.update)
        return UpdateResult(Weights(batch.update))


class Disk:
    """Writes checkpoints; fails as often as it is told to."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.written = []

    def write(self, update, result):
        if self.faults:
            raise self.faults.pop()
        self.written.append(update)
        return replace(result, checkpoint=f"checkpoint {update}")

    def step(self, every_updates=1):
        return UpdateStep("its checkpoint", every_updates, self.write)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fault", [FULL, LearnerFault("a rank died"), RuntimeError("the writer of weights failed")])
def test_a_checkpoint_that_cannot_be_written_is_tried_again_alone(fault):
    inner, disk = Counting(), Disk(fault)
    learner = LocalLearner(LearnerWithSteps(inner, [disk.step()]))

    async def both():
        with pytest.raises(UpdateUncertain, match="update 1 is done, but its checkpoint failed"):
            await learner.update(Batch(1, 0, ()))
        return [await learner.update(Batch(update, update - 1, ())) for update in (1, 2)]

    results = asyncio.run(both())
    assert [result.checkpoint for result in results] == ["checkpoint 1", "checkpoint 2"]
    assert [result.weights.version for result in results] == [1, 2]
    assert inner.trained == [1, 2]


async def test_an_update_that_did_not_happen_is_done_again():
    inner, disk = Counting(failing=[1]), Disk()
    learner = LearnerWithSteps(inner, [disk.step(every_updates=2)])
    with pytest.raises(LearnerFault, match="scripted"):
        await learner.update(Batch(1, 0, ()))
    results = [await learner.update(Batch(update, update - 1, ())) for update in (1, 2)]
    assert [result.checkpoint for result in results] == [None, "checkpoint 2"]
    assert inner.trained == [1, 2]


async def test_steps_that_are_done_are_not_done_again():
    inner, done, failing = Counting(), [], Disk(FULL)

    def evaluate(update, result):
        done.append(update)
        return replace(result, metrics={"held_out": 0.5})

    learner = LearnerWithSteps(inner, [UpdateStep("its evaluation", 1, evaluate), failing.step()])
    with pytest.raises(UpdateUncertain, match="its checkpoint failed"):
        await learner.update(Batch(1, 0, ()))
    result = await learner.update(Batch(1, 0, ()))
    assert (result.checkpoint, result.metrics) == ("checkpoint 1", {"held_out": 0.5})
    assert inner.trained == done == failing.written == [1]
