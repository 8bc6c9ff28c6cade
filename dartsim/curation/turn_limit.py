"""How many turns an attempt may take: DART's trajectory length, by the task's longest success so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dartsim.core.types import Ending, Trajectory


class TurnLimitRule(Protocol):
    """Decides how long a task's next attempts may be and learns from finished ones."""

    @property
    def most(self) -> int:
        """Turns of an attempt at a task that nothing is known of."""
        ...

    def limit(self, task_id: str) -> int:
        """Return the turn limit of the task's next attempt."""
        ...

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Take note of finished attempts, successes or not."""
        ...

    def state(self) -> Any:
        """Return what it has learned, as JSON can say it."""
        ...

    def restore(self, state: Any) -> None:
        """Take up what ``state`` returned."""
        ...


class FixedTurnLimit:
    """The same limit for every task (DART's released code)."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    @property
    def most(self) -> int:
        """The limit."""
        return self._turns

    def limit(self, task_id: str) -> int:
        """Return the limit."""
        return self._turns

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Nothing to learn."""

    def state(self) -> None:
        """There is none."""

    def restore(self, state: None) -> None:
        """Nothing to take up."""


@dataclass(slots=True)
class _Successes:
    shortest: int
    longest: int


class TurnLimitBySuccess:
    """cap(task) = longest success so far + slack, within [least, most]; ``most`` while there is none.

    Invariant: a limit is never below the task's shortest known success and never shrinks once the task was
    solved. A success that was longer than ``most`` when it was collected elsewhere can lift it.

    Args:
        most: L_max, turns of a task without a success.
        least: Fewest turns.
        slack: Turns allowed beyond the longest success.
        success_reward: Reward from which an attempt is a success.

    Source: DART (arXiv 2509.23866), dynamic trajectory length, min(L_max, longest success of the task). It is in
        no commit of the released code. Departures: ``least`` and ``slack``, which 1 and 0 switch off.
    """

    def __init__(self, *, most: int, least: int = 1, slack: int = 0, success_reward: float = 1.0) -> None:
        if not 1 <= least <= most:
            raise ValueError(f"least must be in [1, most = {most}], got {least}")
        if slack < 0:
            raise ValueError(f"slack must be at least 0, got {slack}")
        self._most = most
        self._least = least
        self._slack = slack
        self._success_reward = success_reward
        self._successes: dict[str, _Successes] = {}
        self.counts: Counter[str] = Counter()
        """``first_success`` and ``grown``: why limits changed; ``cut_short``: attempts that met a lowered one."""

    @property
    def most(self) -> int:
        """Turns of a task without a success."""
        return self._most

    def limit(self, task_id: str) -> int:
        """Return the turn limit of the task's next attempt."""
        known = self._successes.get(task_id)
        if known is None:
            return self._most
        within = min(self._most, max(self._least, known.longest + self._slack))
        return max(within, known.shortest)

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        """Remember how long successes were; those without turns say nothing."""
        for trajectory in trajectories:
            if trajectory.ending is Ending.TURN_LIMIT and trajectory.attempt.turn_limit < self._most:
                self.counts["cut_short"] += 1
            reward, turns = trajectory.reward, len(trajectory.turns)
            if reward is not None and reward >= self._success_reward and turns:
                self._solved(trajectory.attempt.task.id, turns)

    def _solved(self, task_id: str, turns: int) -> None:
        known = self._successes.get(task_id)
        if known is None:
            self._successes[task_id] = _Successes(turns, turns)
            self.counts["first_success"] += 1
            return
        if turns > known.longest:
            self.counts["grown"] += 1
        known.shortest = min(known.shortest, turns)
        known.longest = max(known.longest, turns)

    def state(self) -> dict[str, Any]:
        """Return the lengths of successes by task, and what was counted."""
        lengths = {task: [known.shortest, known.longest] for task, known in self._successes.items()}
        return {"lengths": lengths, "counts": dict(self.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what ``state`` returned."""
        self._successes = {task: _Successes(*lengths) for task, lengths in state["lengths"].items()}
        self.counts = Counter(state["counts"])
