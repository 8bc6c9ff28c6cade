"""``TaskFilter``: a task order that skips tasks that are too easy or too hard to learn from, for a while."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from dartsim.config.sections.curation import TaskFilterConfig
from dartsim.core.rewards import TOLERANCE
from dartsim.core.types import Task
from dartsim.curation.rules.task_order import TaskOrder
from dartsim.curation.success_pool import SuccessPool

REVISIT_AFTER = 4
"""Skips after which a task is offered again."""


class TaskFilter(TaskOrder):
    """Another order, without tasks whose mean reward over their last attempts is too high or too low.

    A task with a stored success is never too hard, because the pool makes groups of failures worth training on. A task
    is judged once ``window`` rewards are known. After ``REVISIT_AFTER`` skips it is offered again and its rewards are
    forgotten, because policies change. If every task would be skipped, the next one is offered anyway, so a run never
    waits for a task.
    """

    def __init__(
        self, order: TaskOrder, parameters: TaskFilterConfig, *, num_tasks: int, pool: SuccessPool | None = None
    ) -> None:
        self._order = order
        self._parameters = parameters
        self._num_tasks = num_tasks
        self._pool = pool
        self._rewards: dict[str, deque[float]] = {}
        self._skipped: Counter[str] = Counter()

    @override
    def next(self) -> Task:
        for _ in range(self._num_tasks):
            task = self._order.next()
            if self.offer(task.id):
                return task
        return self._order.next()

    @override
    def learn(self, task_id: str, rewards: Sequence[float]) -> None:
        self._order.learn(task_id, rewards)
        self._rewards.setdefault(task_id, deque(maxlen=self._parameters.window)).extend(rewards)

    def teaches(self, task_id: str) -> bool:
        """Return whether a task is neither too easy nor too hard, as far as its rewards are known."""
        rewards = self._rewards.get(task_id)
        if rewards is None or len(rewards) < self._parameters.window:
            return True
        mean = sum(rewards) / len(rewards)
        stored = self._pool is not None and bool(self._pool.stored(task_id))
        too_hard = mean < self._parameters.min_mean - TOLERANCE and not stored
        return mean <= self._parameters.max_mean + TOLERANCE and not too_hard

    def offer(self, task_id: str) -> bool:
        """Return whether the next task may be offered now; otherwise its skip is counted."""
        if self.teaches(task_id):
            return True
        if self._skipped[task_id] >= REVISIT_AFTER:
            del self._skipped[task_id], self._rewards[task_id]
            return True
        self._skipped[task_id] += 1
        return False

    @override
    def state(self) -> dict[str, Any]:
        rewards = {task: list(newest) for task, newest in self._rewards.items()}
        return {"order": self._order.state(), "rewards": rewards, "skipped": dict(self._skipped)}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        self._order.restore(state["order"])
        self._rewards = {
            task: deque(newest, maxlen=self._parameters.window) for task, newest in state["rewards"].items()
        }
        self._skipped = Counter(state["skipped"])
