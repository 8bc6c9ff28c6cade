"""Sampling units: what has to end before a slot gets new work.

Slots form gangs. A gang is open until one of its attempts ends, and opens again when none of them runs any
more. Gangs of one slot are rollout-wise sampling (DART), gangs of one group are task-wise, one gang of all
slots is batch-wise.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

Unit = Literal["rollout", "task", "batch"]


class Gang:
    """Slots that start together.

    Invariant: no attempt of the gang starts between the first end of an attempt and the last one.
    """

    __slots__ = ("open", "running", "waiting")

    def __init__(self) -> None:
        self.open = True
        self.running = 0
        self.waiting: deque[int] = deque()
        """Slots that wait for the gang to open, longest first."""

    def start(self) -> None:
        """A slot of the gang starts an attempt."""
        self.running += 1

    def end(self) -> None:
        """A slot of the gang has ended its attempt."""
        self.running -= 1
        self.open = self.running == 0


class Units:
    """The gangs of a cluster.

    Args:
        unit: What is sampled as one.
        num_envs: Slots.
        attempts_per_task: Size of a task-wise gang.
    """

    def __init__(self, unit: Unit, *, num_envs: int, attempts_per_task: int) -> None:
        size = {"rollout": 1, "task": attempts_per_task, "batch": num_envs}[unit]
        gangs = [Gang() for _ in range(0, num_envs, size)]
        self._gang_of = [gangs[slot // size] for slot in range(num_envs)]

    def gang(self, slot: int) -> Gang:
        """Return the gang of a slot."""
        return self._gang_of[slot]
