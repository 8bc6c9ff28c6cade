"""Task order: every task once an epoch, in an order shuffled by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dartsim.types import Task


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
