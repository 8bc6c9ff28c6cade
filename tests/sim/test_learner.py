"""The simulated learner: how long an update takes, and when it fails."""

import asyncio

import pytest

from dartsim.core.checks import check_learner, sample_batch, sample_trajectory
from dartsim.core.errors import InvariantViolated
from dartsim.core.types import UpdateResult, Weights
from dartsim.sim.learner import SimLearner, VersionCounter

BATCH = sample_batch([sample_trajectory(0, num_turns=3), sample_trajectory(1, num_turns=7)], update=4)


def learner(inner=None):
    return SimLearner(inner or VersionCounter(), fixed_seconds=240.0, turn_seconds=1.5)


def now():
    return asyncio.get_running_loop().time()


async def test_an_update_takes_a_fixed_time_and_a_time_a_turn():
    result = await learner().update(BATCH)
    assert now() == 240.0 + 10 * 1.5
    assert result.weights == Weights(4)
    assert result.metrics == {"update_seconds": 255.0}


async def test_what_is_learned_is_learned_when_the_time_has_passed():
    class Inner:
        async def update(self, batch):
            self.asked = (now(), batch)
            return UpdateResult(Weights(batch.update, "weights"), {"loss": 0.5})

    inner = Inner()
    result = await learner(inner).update(BATCH)
    assert inner.asked == (255.0, BATCH)
    assert (result.weights, result.metrics) == (Weights(4, "weights"), {"update_seconds": 255.0, "loss": 0.5})


async def test_the_simulated_learner_conforms():
    await check_learner(learner())
    await check_learner(VersionCounter())


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returned None"),
        (UpdateResult(Weights(2)), "update 1 made version 2"),
        (UpdateResult(Weights(1), {"loss": "high"}), "the metric loss is 'high'"),
    ],
)
async def test_a_learner_that_answers_something_else_does_not_conform(result, message):
    class Wrong:
        async def update(self, batch):
            return result

    with pytest.raises(InvariantViolated, match=message):
        await check_learner(Wrong())
