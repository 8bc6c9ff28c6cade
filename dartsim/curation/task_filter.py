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


class TaskFilter(TaskOrder):
    """Another order, without tasks whose mean reward over their last attempts is too high or too low.

    A task with a stored success is never too hard, because the pool makes groups of failures worth training on. A task
    is judged once ``window`` rewards are known. After ``revisit_after`` skips it is offered again and its rewards are
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
        self.counts: Counter[str] = Counter()
        """Skips by reason (``too_easy``, ``too_hard``), ``revisited``, and ``none_left``."""

    @override
    def next(self) -> Task:
        for _ in range(self._num_tasks):
            task = self._order.next()
            if self.offer(task.id):
                return task
        self.counts["none_left"] += 1
        return self._order.next()

    @override
    def learn(self, task_id: str, rewards: Sequence[float]) -> None:
        self._order.learn(task_id, rewards)
        self._rewards.setdefault(task_id, deque(maxlen=self._parameters.window)).extend(rewards)

    def reason_to_skip(self, task_id: str) -> str | None:
        """Return ``too_easy`` or ``too_hard``, or None if the task may be offered. Changes nothing."""
        rewards = self._rewards.get(task_id)
        if rewards is None or len(rewards) < self._parameters.window:
            return None
        mean = sum(rewards) / len(rewards)
        if mean > self._parameters.max_mean + TOLERANCE:
            return "too_easy"
        stored = self._pool is not None and bool(self._pool.stored(task_id))
        return "too_hard" if mean < self._parameters.min_mean - TOLERANCE and not stored else None

    def offer(self, task_id: str) -> bool:
        """Return whether the next task may be offered now, and count why not."""
        reason = self.reason_to_skip(task_id)
        if reason is None:
            return True
        revisit_after = self._parameters.revisit_after
        if revisit_after is not None and self._skipped[task_id] >= revisit_after:
            del self._skipped[task_id], self._rewards[task_id]
            self.counts["revisited"] += 1
            return True
        self._skipped[task_id] += 1
        self.counts[reason] += 1
        return False

    @override
    def state(self) -> dict[str, Any]:
        rewards = {task: list(newest) for task, newest in self._rewards.items()}
        skips = {"rewards": rewards, "skipped": dict(self._skipped), "counts": dict(self.counts)}
        return {"order": self._order.state(), **skips}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        self._order.restore(state["order"])
        self._rewards = {
            task: deque(newest, maxlen=self._parameters.window) for task, newest in state["rewards"].items()
        }
        self._skipped = Counter(state["skipped"])
        self.counts = Counter(state["counts"])
