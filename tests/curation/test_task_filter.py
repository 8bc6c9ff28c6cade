"""Held-out tasks by hash of their ids, and the filter of tasks that teach nothing at the time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.types import Task
from dartsim.curation.task_filter import FilteredOrder, TaskFilter, position, split_tasks

TASKS = [Task(f"task-{index}", "") for index in range(400)]
names = st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=30, unique=True)


def test_positions_are_the_same_in_every_process():
    found = [position("task-1", 0), position("task-1", 1), position("task-2", 0)]
    assert found == [0.7734375300709925, 0.8179356121199376, 0.6643439390608313]


def test_about_the_share_is_held_out():
    assert len(split_tasks(TASKS, share=0.2).held_out) == pytest.approx(80, abs=20)
    assert split_tasks(TASKS, share=0.0).held_out == ()


@given(names, st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_split_is_a_partition_in_order_with_both_sides(ids: list[str], share: float, seed: int):
    tasks = [Task(name, "") for name in ids]
    split = split_tasks(tasks, share=share, seed=seed)
    assert split.train
    assert split.held_out
    assert sorted((*split.train, *split.held_out), key=tasks.index) == tasks
    assert list(split.train) == sorted(split.train, key=tasks.index)


def test_other_tasks_do_not_move_a_task_and_a_seed_does():
    held_out = {task.id for task in split_tasks(TASKS, share=0.3).held_out}
    assert {task.id for task in split_tasks(TASKS[::-2], share=0.3).held_out} == {
        task.id for task in TASKS[::-2] if task.id in held_out
    }
    assert {task.id for task in split_tasks(TASKS, share=0.3, seed=1).held_out} != held_out


def test_a_larger_share_holds_out_a_superset():
    small, large = split_tasks(TASKS, share=0.1), split_tasks(TASKS, share=0.2)
    assert set(small.held_out) <= set(large.held_out)


def test_a_split_that_cannot_be_made_is_refused():
    with pytest.raises(ValueError, match="needs two tasks at least, got 1"):
        split_tasks(TASKS[:1], share=0.5)
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\), got 1.0"):
        split_tasks(TASKS, share=1.0)


# -- the filter -----------------------------------------------------------------------------------------


def test_a_task_is_skipped_only_above_the_mean_and_with_a_full_window():
    rule = TaskFilter(window=4, max_mean=0.75, revisit_after=None)
    offered = []
    for reward in [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]:
        rule.learn("t", [reward])
        offered.append(rule.offer("t"))
    # means of the last four: -, -, -, .75, .75, .75, .5, .5
    assert offered == [True] * 8
    rule.learn("t", [1.0] * 4)
    assert not rule.offer("t")
    assert rule.counts == {"too_easy": 1}
    assert rule.offer("another")


def test_a_task_that_is_never_solved_can_be_skipped():
    rule = TaskFilter(window=2, min_mean=0.1)
    rule.learn("t", [0.0, 0.0])
    assert rule.reason_to_skip("t") == "too_hard"


def test_by_default_nothing_is_skipped():
    rule = TaskFilter(window=2)
    rule.learn("easy", [1.0, 1.0])
    rule.learn("hard", [0.0, 0.0])
    assert rule.offer("easy")
    assert rule.offer("hard")


def test_a_skipped_task_comes_back_with_a_clean_slate():
    rule = TaskFilter(window=2, max_mean=0.5, revisit_after=3)
    rule.learn("t", [1.0, 1.0])
    assert [rule.offer("t") for _ in range(5)] == [False, False, False, True, True]
    rule.learn("t", [1.0, 1.0])
    assert not rule.offer("t")
    assert rule.counts == {"too_easy": 4, "revisited": 1}


class Cycle:
    """Tasks in turn."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks
        self.asked = 0

    def next(self) -> Task:
        self.asked += 1
        return self.tasks[(self.asked - 1) % len(self.tasks)]


def test_a_filtered_order_offers_the_others():
    rule = TaskFilter(window=1, max_mean=0.5, revisit_after=None)
    rule.learn("task-1", [1.0])
    order = FilteredOrder(Cycle(TASKS[:3]), rule, num_tasks=3)
    assert [order.next().id for _ in range(4)] == ["task-0", "task-2", "task-0", "task-2"]


def test_an_order_without_any_task_left_offers_one_all_the_same():
    rule = TaskFilter(window=1, max_mean=0.5, revisit_after=None)
    for task in TASKS[:2]:
        rule.learn(task.id, [1.0])
    order = FilteredOrder(Cycle(TASKS[:2]), rule, num_tasks=2)
    assert order.next() in TASKS[:2]
    assert rule.counts == {"too_easy": 2, "none_left": 1}


@pytest.mark.parametrize(
    "options", [{"window": 0}, {"max_mean": 1.5}, {"min_mean": 0.6, "max_mean": 0.5}, {"revisit_after": -1}], ids=str
)
def test_a_filter_out_of_range_is_refused(options: dict[str, Any]):
    with pytest.raises(ValueError, match="wanted window >= 1"):
        TaskFilter(**options)
