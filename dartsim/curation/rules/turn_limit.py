"""Turn limits of attempts: fixed, or DART's limit by the task's longest success so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from dartsim.core.registry import ComponentSection, register
from dartsim.core.rewards import SUCCESS, reaches
from dartsim.core.types import Trajectory


class TurnLimitRule(ABC):
    """Decides how many turns a task's next attempts may take, and learns from finished ones."""

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection

    def __init__(self, parameters: ComponentSection, *, max_turns: int) -> None:
        self.max_turns = max_turns

    @abstractmethod
    def limit(self, task_id: str) -> int:
        """Return the turn limit of the task's next attempt."""

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Learn from finished attempts, successes or not."""
        return

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        return


@register("turn_limit", "fixed")
class FixedTurnLimit(TurnLimitRule):
    """The same limit for every task (DART's released code)."""

    @override
    def limit(self, task_id: str) -> int:
        return self.max_turns


@dataclass(slots=True)
class _Successes:
    shortest: int
    longest: int


@register("turn_limit", "by_success")
class TurnLimitBySuccess(TurnLimitRule):
    """The task's longest success so far, at most max_turns; max_turns while there is none (DART's paper).

    Invariant: a limit is never below the task's shortest known success, and never decreases once the task is solved. A
    collected success longer than ``max_turns`` may raise it.

    Source: DART (arXiv 2509.23866), dynamic trajectory length, min(L_max, longest success of the task). No
    commit of the released code has it.
    """

    def __init__(self, parameters: ComponentSection, *, max_turns: int) -> None:
        super().__init__(parameters, max_turns=max_turns)
        self._successes: dict[str, _Successes] = {}

    @override
    def limit(self, task_id: str) -> int:
        known = self._successes.get(task_id)
        if known is None:
            return self.max_turns
        return max(min(self.max_turns, known.longest), known.shortest)

    @override
    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Remember the lengths of successes, ignoring those without turns."""
        for trajectory in trajectories:
            reward, turns = trajectory.reward, len(trajectory.turns)
            if reward is not None and reaches(reward, SUCCESS) and turns:
                self._record_success(trajectory.attempt.task.id, turns)

    def _record_success(self, task_id: str, turns: int) -> None:
        known = self._successes.setdefault(task_id, _Successes(turns, turns))
        known.shortest = min(known.shortest, turns)
        known.longest = max(known.longest, turns)

    @override
    def state(self) -> dict[str, list[int]]:
        return {task: [known.shortest, known.longest] for task, known in self._successes.items()}

    @override
    def restore(self, state: dict[str, list[int]]) -> None:
        self._successes = {task: _Successes(*lengths) for task, lengths in state.items()}
