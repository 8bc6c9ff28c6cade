"""Task order: every task once an epoch, in an order shuffled by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dartsim.core.types import Task


class TaskOrder:
    """Endless epochs over a task list.

    Invariant: every epoch has each task exactly once.
    """

    def __init__(self, tasks: Sequence[Task], rng: np.random.Generator) -> None:
        if not tasks:
            raise ValueError("a task order needs at least one task, got none")
        self._tasks = tuple(tasks)
        self._rng = rng
        self._left: list[int] = []
        self.epoch = -1

    def next(self) -> Task:
        """Return the next task."""
        if not self._left:
            self._left = [int(i) for i in self._rng.permutation(len(self._tasks))]
            self.epoch += 1
        return self._tasks[self._left.pop()]

    def state(self) -> dict[str, Any]:
        """Return where it is, as JSON can say it."""
        left = [self._tasks[number].id for number in self._left]
        return {"left": left, "epoch": self.epoch, "rng": self._rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what ``state`` returned; tasks that are gone are left out, new ones come with the next epoch."""
        places = {task.id: number for number, task in enumerate(self._tasks)}
        self._left = [places[name] for name in state["left"] if name in places]
        self.epoch = state["epoch"]
        self._rng.bit_generator.state = state["rng"]
