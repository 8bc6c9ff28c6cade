"""Turns of groups that carry a signal, beside all that are trained."""

from __future__ import annotations

import pytest

from dartsim.config import load
from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.observe import Recorder
from dartsim.observe.recorder_state import undo_update
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared


@pytest.fixture(scope="module")
def run():
    """Runs a preset for half an hour of a laptop, and returns it."""

    def run(preset):
        overrides = ["run.hours=0.5", "run.warmup_share=0.0", "run.max_segments=0"]
        return run_prepared(prepare(load(preset, on="laptop", overrides=overrides)))

    return run


def test_who_drops_groups_without_signal_trains_on_turns_with_one_only(run):
    figures = run("trl").figures
    assert figures["signal_turns_per_minute"] == figures["trained_turns_per_minute"] > 0.0


def test_who_trains_on_every_group_trains_on_turns_without_signal_too(run):
    result = run("coupled")
    figures, dropped = result.figures, result.figures["dropped"]
    assert "all_failed" not in dropped
    assert 0.0 < figures["signal_turns_per_minute"] < figures["trained_turns_per_minute"]


def test_an_update_that_is_undone_takes_its_signal_back():
    recorder = Recorder(lambda: 0.0, num_envs=1, num_engines=1)
    signal, none = group(0, (1.0, 0.0)), group(1, (1.0, 1.0))
    recorder.update_finished(Batch(1, 0, (signal, none)), {})
    assert (recorder.counts["trained_turns"], recorder.counts["signal_turns"]) == (12, 6)
    undo_update(recorder, (*signal.trajectories, *none.trajectories), 0)
    assert (recorder.counts["trained_turns"], recorder.counts["signal_turns"]) == (0, 0)


def group(number, rewards):
    """A group with these rewards; each attempt has three turns."""
    task = Task(f"task-{number}", "do it")
    turn = Turn(Observation(None, "do it"), Reply("click", 0, 0, 0, 3000, 104))
    members = (
        Trajectory(Attempt(2 * number + k, task, number, k, 0, 30, 0), (turn,) * 3, Ending.DONE, reward, None, 0.0, 1.0)
        for k, reward in enumerate(rewards)
    )
    return Group(number, task, tuple(members), 1.0)
