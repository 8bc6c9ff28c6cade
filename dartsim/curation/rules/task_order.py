"""Task order: which task is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from pydantic import Field
from typing_extensions import override

from dartsim.core.registry import ComponentSection, register
from dartsim.core.rewards import failed
from dartsim.core.section import Positive
from dartsim.core.types import Task


class TaskOrder(Protocol):
    """An endless order of tasks.

    A registered order is built with ``parameters``, the task list and a random stream.
    """

    def next(self) -> Task:
        """Return the next task."""
        ...

    def learn(self, task_id: str, rewards: Sequence[float]) -> None:
        """Take the rewards of a complete group into account; by default none are."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


@register("task_order", "shuffled")
class ShuffledTasks(TaskOrder):
    """Every task once an epoch, in an order shuffled by seed.

    Invariant: every epoch has each task exactly once.
    """

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection

    def __init__(self, parameters: ComponentSection, *, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        if not tasks:
            raise ValueError("a task order needs at least one task, got none")
        self._tasks = tuple(tasks)
        self._rng = rng
        self._left: list[int] = []
        self.epoch = -1

    @override
    def next(self) -> Task:
        if not self._left:
            self._left = self._epoch()
        return self._tasks[self._left.pop()]

    def _epoch(self) -> list[int]:
        """Begin another epoch and return its tasks by number, the last one first."""
        self.epoch += 1
        return [int(i) for i in self._rng.permutation(len(self._tasks))]

    @override
    def state(self) -> dict[str, Any]:
        left = [self._tasks[number].id for number in self._left]
        return {"left": left, "epoch": self.epoch, "rng": self._rng.bit_generator.state}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned, without tasks that no longer exist; new tasks come with the next epoch."""
        places = {task.id: number for number, task in enumerate(self._tasks)}
        self._left = [places[name] for name in state["left"] if name in places]
        self.epoch = state["epoch"]
        self._rng.bit_generator.state = state["rng"]


@register("task_order", "learnable")
class LearnableTasks(ShuffledTasks):
    """Tasks by what a group of theirs can teach: the nearer to always or never solved, the more epochs apart.

    A task whose last rewards have the mean p comes every 1 + (max_interval - 1) (1 - 4 p (1 - p)) epochs, rounded: each
    epoch at p = 1/2, for the variance of its rewards is largest there; every ``max_interval`` epochs once it always
    succeeds, and every ``unsolved_interval`` while it never does. Nothing is known of a task before its first group.

    Invariant: every task comes at least once in ``max_interval`` epochs, and at most once in each. An epoch without
    tasks is passed over.

    Source: the share of a gradient that is not 0, p (1 - p), as in online difficulty filtering (arXiv 2504.03380) and
        DAPO's dynamic sampling (arXiv 2503.14476), which discards such groups after they were played.
    """

    class Parameters(ComponentSection):
        """How seldom tasks come of which little is learned."""

        max_interval: Positive = Field(4, description="Epochs between two groups of a task that always succeeds.")
        unsolved_interval: Positive = Field(2, description="Epochs between two groups of a task that never does.")
        window: Positive = Field(16, description="Number of the newest rewards of a task that count.")

        @override
        def problems(self, place: str) -> Iterator[str]:
            if self.unsolved_interval > self.max_interval:
                yield (
                    f"{place}.unsolved_interval = {self.unsolved_interval} is more than {place}.max_interval = "
                    f"{self.max_interval}. Lower the first."
                )

    def __init__(self, parameters: Parameters, *, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        super().__init__(parameters, tasks=tasks, rng=rng)
        self._parameters = parameters
        self._rewards: dict[str, deque[float]] = {}
        self._came: dict[str, int] = {}
        """Epoch in which a task came last."""

    @override
    def learn(self, task_id: str, rewards: Sequence[float]) -> None:
        self._rewards.setdefault(task_id, deque(maxlen=self._parameters.window)).extend(rewards)

    def interval(self, task_id: str) -> int:
        """Return how many epochs apart a task comes now."""
        rewards = self._rewards.get(task_id)
        if not rewards:
            return 1
        mean, longest = sum(rewards) / len(rewards), self._parameters.max_interval
        if failed(mean):
            return self._parameters.unsolved_interval
        return 1 + round((longest - 1) * (1.0 - 4.0 * mean * (1.0 - mean)))

    @override
    def _epoch(self) -> list[int]:
        due: list[int] = []
        while not due:
            self.epoch += 1
            for number in self._rng.permutation(len(self._tasks)):
                task_id = self._tasks[number].id
                if self.epoch - self._came.get(task_id, -self._parameters.max_interval) >= self.interval(task_id):
                    due.append(int(number))
                    self._came[task_id] = self.epoch
        return due

    @override
    def state(self) -> dict[str, Any]:
        rewards = {task: list(newest) for task, newest in self._rewards.items()}
        return {**super().state(), "rewards": rewards, "came": dict(self._came)}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        newest = self._parameters.window
        self._rewards = {task: deque(rewards, maxlen=newest) for task, rewards in state["rewards"].items()}
        self._came = dict(state["came"])
