"""How many attempts a task gets: DART's rollout frequency."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from math import floor
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from dartsim.config.sections.curation import AttemptsConfig
from dartsim.core.registry import register
from dartsim.core.rewards import reaches
from dartsim.core.section import Positive, Share


class AttemptsRule(ABC):
    """Decides the size of a task's next group, and learns from finished groups."""

    Parameters: ClassVar[type[AttemptsConfig]] = AttemptsConfig

    def __init__(self, parameters: AttemptsConfig) -> None:
        self.parameters = parameters

    @abstractmethod
    def size_at(self, success_rate: float) -> int:
        """Return the group size for a task with this success rate."""

    def attempts(self, task_id: str) -> int:
        return self.parameters.group_size

    def learn(self, task_id: str, rewards: list[float]) -> None:
        return

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        return


@register("attempts", "fixed")
class FixedAttempts(AttemptsRule):
    """The same number of attempts for every task."""

    @override
    def size_at(self, success_rate: float) -> int:
        return self.parameters.group_size


@register("attempts", "by_success")
class AttemptsBySuccess(AttemptsRule):
    """Fewer attempts for tasks that mostly succeed (DART).

    Departure: the released code updates success rates once per epoch of the task queue; here they are updated with
    every group.
    """

    class Parameters(AttemptsConfig):
        """When and how the number of attempts is lowered."""

        min_group_size: Positive = Field(2, description="Fewest attempts of a task.")
        threshold: Share = Field(0.6, description="Success rate from which attempts are lowered.")

        @property
        @override
        def smallest_group(self) -> int:
            return self.min_group_size

        @override
        def problems(self, place: str) -> Iterator[str]:
            if self.min_group_size > self.group_size:
                yield (
                    f"{place}.min_group_size = {self.min_group_size} is more than {place}.group_size = "
                    f"{self.group_size}. Lower the first."
                )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._min_group_size = parameters.min_group_size
        self._threshold = parameters.threshold
        self._rewards: dict[str, deque[float]] = {}

    @override
    def size_at(self, success_rate: float) -> int:
        """Return N(p): ``group_size`` attempts below the threshold; from it on, fewer the easier the task is.

        ``9/p - 7`` passes through (0.6, 8) and (1.0, 2): .6, .7, .8, .9, 1.0 give 8, 5, 4, 3, 2.

        Source: DART (arXiv 2509.23866), dynamic rollout frequency; the formula is the released code's
        (``int(9 / success - 7)``), because the paper only plots the curve.
        """
        if not reaches(success_rate, self._threshold):
            return self.parameters.group_size
        # 9/0.9 - 7 is 2.9999999999999996 in floats; the slack makes it 3.
        return min(self.parameters.group_size, max(self._min_group_size, floor(9.0 / success_rate - 7.0 + 1e-9)))

    @override
    def attempts(self, task_id: str) -> int:
        """Return N(p) for the mean of the task's last ``group_size`` rewards."""
        rewards = self._rewards.get(task_id)
        return self.size_at(sum(rewards) / len(rewards)) if rewards else self.parameters.group_size

    @override
    def learn(self, task_id: str, rewards: list[float]) -> None:
        self._rewards.setdefault(task_id, deque(maxlen=self.parameters.group_size)).extend(rewards)

    @override
    def state(self) -> dict[str, list[float]]:
        return {task: list(rewards) for task, rewards in self._rewards.items()}

    @override
    def restore(self, state: dict[str, list[float]]) -> None:
        newest = self.parameters.group_size
        self._rewards = {task: deque(rewards, maxlen=newest) for task, rewards in state.items()}
