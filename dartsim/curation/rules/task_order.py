"""Task orders: which task is next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from typing_extensions import override

from dartsim.core.registry import ComponentSection, register
from dartsim.core.types import Task


class TaskOrder(Protocol):
    """An endless order of tasks.

    A registered order is built with ``parameters``, ``tasks`` and a random stream ``rng``.
    """

    def next(self) -> Task:
        """Return the next task."""
        ...

    def learn(self, task_id: str, rewards: Sequence[float]) -> None:
        """Learn from the rewards of a complete group; by default, do nothing."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


@register("task_order", "shuffled")
class ShuffledTasks(TaskOrder):
    """Every task once per epoch, in an order shuffled by seed.

    Invariant: every epoch has each task exactly once.
    """

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection

    def __init__(self, parameters: ComponentSection, *, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        if not tasks:
            raise ValueError("a task order needs at least one task, got none")
        self._tasks = tuple(tasks)
        self._rng = rng
        self._left: list[int] = []

    @override
    def next(self) -> Task:
        if not self._left:
            self._left = [int(i) for i in self._rng.permutation(len(self._tasks))]
        return self._tasks[self._left.pop()]

    @override
    def state(self) -> dict[str, Any]:
        left = [self._tasks[number].id for number in self._left]
        return {"left": left, "rng": self._rng.bit_generator.state}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned, without tasks that no longer exist; new tasks enter with the next epoch."""
        places = {task.id: number for number, task in enumerate(self._tasks)}
        self._left = [places[name] for name in state["left"] if name in places]
        self._rng.bit_generator.state = state["rng"]
