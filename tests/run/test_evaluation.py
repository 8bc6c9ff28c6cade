"""Evaluation of a model in training: equal attempts for every version, and masked ones are not scored."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `train`")

from dartsim.config import load
from dartsim.core.types import Attempt, Ending, Task, Trajectory, Weights
from dartsim.real.evaluate import HeldOutRewards
from dartsim.real.vlm import build
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.evaluation import Trials
from dartsim.run.prepare import prepare


def test_equal_weights_make_equal_attempts_under_any_version():
    prepared = prepare(load(preset_name="tiny", overrides=["tasks.count=16", "tasks.held_out=32"]))
    vlm = build(vlm_config(prepared.config))
    trials, weights = Trials(prepared, vlm, 2), vlm.snapshot()
    first, again = trials(Weights(0, weights)), trials(Weights(7, weights))
    assert (first.version, again.version) == (0, 7)
    assert first.rewards == again.rewards
    assert len(first.rewards) == 32
    assert all(len(rewards) == 2 for rewards in first.rewards.values())


def test_masked_attempts_are_never_scored():
    def played(index: int, task: str, reward: float | None) -> Trajectory:
        attempt = Attempt(index, Task(task, ""), 0, index, 0, 5, 0)
        return Trajectory(attempt, (), Ending.DONE, reward, None, 0.0, 0.0)

    found = HeldOutRewards.of(
        3, [played(0, "a", 1.0), played(1, "a", 0.0), played(2, "b", 1.0), played(3, "b", None), played(4, "c", None)]
    )
    assert found.task_means() == {"a": 0.5, "b": 1.0}
    assert found.mean == 0.75
