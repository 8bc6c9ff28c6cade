"""The filter of tasks that teach nothing at the time."""

from __future__ import annotations

from typing import Any

from dartsim.config.sections.curation import TaskFilterConfig
from dartsim.core.types import Task
from dartsim.curation.success_pool import SuccessPool
from dartsim.curation.task_filter import TaskFilter
from dartsim.testing.ports import sample_trajectory

TASKS = [Task(f"task-{index}", "") for index in range(400)]


class Cycle:
    """Tasks in turn."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks
        self.asked = 0

    def learn(self, task_id: str, rewards: list[float]) -> None:
        """Learn nothing."""

    def next(self) -> Task:
        self.asked += 1
        return self.tasks[(self.asked - 1) % len(self.tasks)]


def made(tasks: list[Task] = TASKS, pool: SuccessPool | None = None, **parameters: Any) -> TaskFilter:
    return TaskFilter(Cycle(tasks), TaskFilterConfig(**parameters), num_tasks=len(tasks), pool=pool)


def test_a_task_is_skipped_only_above_the_mean_and_with_a_full_window():
    rule = made(window=4, max_mean=0.75)
    offered = []
    for reward in [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]:
        rule.learn("t", [reward])
        offered.append(rule.offer("t"))
    # means of the last four: -, -, -, .75, .75, .75, .5, .5
    assert offered == [True] * 8
    rule.learn("t", [1.0] * 4)
    assert not rule.offer("t")
    assert rule.offer("another")


def test_a_task_that_is_never_solved_can_be_skipped():
    rule = made(window=2, min_mean=0.1)
    rule.learn("t", [0.0, 0.0])
    assert not rule.teaches("t")


def test_a_task_of_which_a_success_is_stored_is_not_too_hard():
    pool = SuccessPool()
    rule = made(pool=pool, window=2, min_mean=0.1, max_mean=0.9)
    for task in ("check", "other"):
        rule.learn(task, [0.0, 0.0])
    pool.add(sample_trajectory(1), now=0.0)
    assert (rule.teaches("check"), rule.teaches("other")) == (True, False)
    rule.learn("check", [1.0, 1.0])
    assert not rule.teaches("check")


def test_a_skipped_task_comes_back_with_a_clean_slate():
    rule = made(window=2, max_mean=0.5)
    rule.learn("t", [1.0, 1.0])
    assert [rule.offer("t") for _ in range(6)] == [False, False, False, False, True, True]
    rule.learn("t", [1.0, 1.0])
    assert not rule.offer("t")


def test_a_filtered_order_offers_the_others():
    order = made(TASKS[:3], window=1, max_mean=0.5)
    order.learn("task-1", [1.0])
    assert [order.next().id for _ in range(4)] == ["task-0", "task-2", "task-0", "task-2"]


def test_an_order_without_any_task_left_offers_one_all_the_same():
    rule = made(TASKS[:2], window=1, max_mean=0.5)
    for task in TASKS[:2]:
        rule.learn(task.id, [1.0])
    assert rule.next() in TASKS[:2]
