"""Groups: the attempts of one task that are compared, and which of them are worth training on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dartsim.core.types import Drop, Task, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which complete groups may be trained on.

    Attributes:
        min_size: Fewest unmasked attempts.
        drop_all_failed: Whether a group in which all failed is dropped: its advantages are all zero.
        drop_solved: Whether a group whose mean reward reaches ``max_mean_reward`` is dropped.
        max_mean_reward: Where a group counts as solved (released code: ``acc_max`` 1.0).
        drop_equal: Whether a group whose rewards are all equal, strictly between 0 and 1, is dropped.
    """

    min_size: int = 2
    drop_all_failed: bool = True
    drop_solved: bool = True
    max_mean_reward: float = 1.0
    drop_equal: bool = True

    def reason_to_drop(self, trajectories: Sequence[Trajectory]) -> Drop | None:
        """Return why a group of unmasked trajectories is not worth training on, or None if it is."""
        rewards = [t.reward for t in trajectories if t.reward is not None]
        if len(rewards) < self.min_size:
            return Drop.TOO_SMALL
        mean = sum(rewards) / len(rewards)
        if self.drop_all_failed and mean <= 0.0:
            return Drop.ALL_FAILED
        if self.drop_solved and mean >= self.max_mean_reward:
            return Drop.ALL_SOLVED
        if self.drop_equal and 0.0 < mean < 1.0 and len(rewards) > 1 and min(rewards) == max(rewards):
            return Drop.NO_SIGNAL
        return None


@dataclass(slots=True)
class OpenGroup:
    """A group that is being collected.

    Attributes:
        id: Its number.
        task: Its task.
        size: Attempts it was planned with.
        admitted: Attempts of it that were started, replacements included.
        finished: Attempts of it that ended.
        replaced: Masked attempts that were, or will be, tried again.
        usable: Its unmasked trajectories so far.
        turn_limit: Most turns of each of its attempts, so that they are compared on the same terms.
        again: Index and seed of attempts that a crash ended, which are made again under other numbers.
        repeated: Attempts that were made again.
        further: Attempts that it was given because all others had failed.
    """

    id: int
    task: Task
    size: int
    admitted: int = 0
    finished: int = 0
    replaced: int = 0
    usable: list[Trajectory] = field(default_factory=list)
    turn_limit: int = 0
    again: list[tuple[int, int]] = field(default_factory=list)
    repeated: int = 0
    further: int = 0

    @property
    def planned(self) -> int:
        """Attempts it will have had in the end."""
        return self.size + self.replaced + self.further

    @property
    def complete(self) -> bool:
        """Whether every attempt has ended."""
        return self.finished == self.planned
