"""How many attempts a task gets: DART's rollout frequency."""

from __future__ import annotations

from collections import deque
from math import floor
from typing import Any, Protocol


class AttemptsRule(Protocol):
    """Decides the size of a task's next group and learns from finished ones."""

    @property
    def most(self) -> int:
        """Largest group it can ask for."""
        ...

    def attempts(self, task_id: str) -> int:
        """Return the number of attempts of the task's next group."""
        ...

    def learn(self, task_id: str, rewards: list[float]) -> None:
        """Take note of the rewards of a finished group."""
        ...

    def state(self) -> Any:
        """Return what it has learned, as JSON can say it."""
        ...

    def restore(self, state: Any) -> None:
        """Take up what ``state`` returned."""
        ...


class FixedAttempts:
    """The same number of attempts for every task."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts

    @property
    def most(self) -> int:
        """The number of attempts."""
        return self._attempts

    def attempts(self, task_id: str) -> int:
        """Return the number of attempts."""
        return self._attempts

    def learn(self, task_id: str, rewards: list[float]) -> None:
        """Nothing to learn."""

    def state(self) -> None:
        """There is none."""

    def restore(self, state: None) -> None:
        """Nothing to take up."""


def attempts_at(success_rate: float, *, most: int, least: int, threshold: float) -> int:
    """Return N(p): ``most`` attempts below the threshold, and fewer the easier the task is above it.

    ``9/p - 7`` passes through (0.6, 8) and (1.0, 2): .6, .7, .8, .9, 1.0 give 8, 5, 4, 3, 2.

    Source: DART (arXiv 2509.23866), dynamic rollout frequency; the formula is the released code's
    (``int(9 / success - 7)``), because the paper draws the curve without giving it.
    """
    if success_rate < threshold:
        return most
    # 9/0.9 - 7 is 2.9999999999999996 in floats; the slack keeps the table's value.
    return min(most, max(least, floor(9.0 / success_rate - 7.0 + 1e-9)))


class AttemptsBySuccess:
    """Fewer attempts for tasks that mostly succeed.

    Departure: the released code refreshes success rates once an epoch of the whole task queue; here they
    are fresh at every group.

    Args:
        most: Attempts of a task below the threshold, and of one never tried.
        least: Fewest attempts.
        threshold: Success rate from which attempts are lowered.
    """

    def __init__(self, *, most: int, least: int, threshold: float) -> None:
        self._most = most
        self._least = least
        self._threshold = threshold
        self._rewards: dict[str, deque[float]] = {}

    @property
    def most(self) -> int:
        """Largest group."""
        return self._most

    def attempts(self, task_id: str) -> int:
        """Return N(p) for the mean of the task's last ``most`` rewards."""
        rewards = self._rewards.get(task_id)
        if not rewards:
            return self._most
        rate = sum(rewards) / len(rewards)
        return attempts_at(rate, most=self._most, least=self._least, threshold=self._threshold)

    def learn(self, task_id: str, rewards: list[float]) -> None:
        """Remember the newest rewards."""
        self._rewards.setdefault(task_id, deque(maxlen=self._most)).extend(rewards)

    def state(self) -> dict[str, list[float]]:
        """Return the newest rewards by task."""
        return {task: list(rewards) for task, rewards in self._rewards.items()}

    def restore(self, state: dict[str, list[float]]) -> None:
        """Take up what ``state`` returned."""
        self._rewards = {task: deque(rewards, maxlen=self._most) for task, rewards in state.items()}
