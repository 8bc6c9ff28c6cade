"""Trajectory length: the cap follows the task's longest success."""

from __future__ import annotations

from dartsim.core.registry import parameters
from dartsim.core.types import Attempt, Ending, Observation, Reply, Task, Trajectory, Turn


def by_success():
    return parameters("turn_limit", "by_success")().build(max_turns=30)


TURN = Turn(Observation(None, ""), Reply("click", 0, 0, 0, 10, 5))


def played(
    turns: int,
    reward: float | None = 1.0,
    *,
    task: str = "t",
    turn_limit: int = 30,
    ending: Ending = Ending.DONE,
) -> Trajectory:
    attempt = Attempt(id=0, task=Task(task, ""), group=0, index=0, seed=0, turn_limit=turn_limit, version=0)
    return Trajectory(attempt, (TURN,) * turns, ending, reward, None, 0.0, 1.0)


def test_the_cap_is_the_longest_success_and_l_max_while_there_is_none():
    rule = by_success()
    seen = [rule.limit("t")]
    for turns, reward in [(25, 0.0), (7, 1.0), (5, 1.0), (12, 1.0), (29, 0.5), (40, 0.0)]:
        rule.learn([played(turns, reward)])
        seen.append(rule.limit("t"))
    assert seen == [30, 30, 7, 7, 12, 12, 12]
    assert rule.limit("another") == 30


def test_a_collected_success_beyond_the_limit_raises_it():
    rule = by_success()
    rule.learn([played(40)])  # below, the task could not be solved
    assert rule.limit("t") == 40


def test_masked_attempts_and_those_without_turns_teach_nothing():
    rule = by_success()
    rule.learn([played(5, None, ending=Ending.BROKEN), played(0, 1.0)])
    assert rule.limit("t") == 30
