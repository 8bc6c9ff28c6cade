from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.rewards import mean_over_tasks, task_means
from dartsim.core.types import Attempt, Content, Ending, Request, Task
from dartsim.envs.simulated import SimDesktop
from dartsim.real.evaluate import evaluate, play


class Scripted:
    """Says the same thing at every turn, and remembers what it was asked."""

    def __init__(self, *actions: str):
        self.actions = actions
        self.asked: list[int] = []

    def compute(self, requests: Sequence[Request], version: int) -> list[Content]:
        self.asked.append(len(requests))
        return [Content(self.actions[request.turn], np.zeros(3), None, None) for request in requests]


def attempts(count: int, turn_limit: int = 2) -> list[Attempt]:
    return [Attempt(i, Task(str(i), "press"), 0, i, i, turn_limit, 7) for i in range(count)]


def test_one_batch_a_turn(red_buttons):
    scripted = Scripted("click 0 0")
    played = play(scripted, red_buttons, attempts(20), version=7)
    assert scripted.asked == [16, 4]
    assert [t.attempt.id for t in played] == list(range(20))
    assert [t.reward for t in played] == [float(i % 4 == 0) for i in range(20)]
    assert {t.turns[0].reply.version for t in played} == {7}


def test_attempts_end_as_the_desktop_says_or_at_their_limit():
    desktops = [SimDesktop(draw=False) for _ in range(3)]
    assert [t.ending for t in play(Scripted("x", "DONE"), desktops, attempts(3), version=0)] == [Ending.DONE] * 3
    assert [t.ending for t in play(Scripted("x", "FAIL"), desktops, attempts(3), version=0)] == [Ending.FAIL] * 3
    limited = play(Scripted("x", "y"), desktops, attempts(3), version=0)
    assert [(t.ending, len(t.turns)) for t in limited] == [(Ending.TURN_LIMIT, 2)] * 3


def test_success_is_the_mean_over_tasks(red_buttons):
    tasks = [Task(str(cell), "press") for cell in range(4)]
    result = evaluate(Scripted("click 0 0"), red_buttons, tasks, version=3, turn_limit=1, attempts=2)
    assert result == {"0": 1.0, "1": 0.0, "2": 0.0, "3": 0.0}
    assert mean_over_tasks(result) == 0.25


def test_a_masked_attempt_has_no_share_in_its_task_s_mean():
    found = task_means([("a", 1.0), ("a", 0.0), ("b", 1.0), ("b", None), ("c", None)])
    assert found == {"a": 0.5, "b": 1.0}
    assert mean_over_tasks(found) == 0.75
    assert mean_over_tasks({}) is None
