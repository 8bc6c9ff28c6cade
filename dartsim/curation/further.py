"""Further attempts for a group in which all failed, on slots that would wait otherwise.

A hard task's group most often fails as a whole and is dropped: no signal, and all of its desktop time lost. Where the
trainer is what limits a run, slots wait; one more attempt costs nothing then, and a single success makes the group
worth training on. Whether a group goes on depends on its outcomes, so its mean reward is no longer an unbiased estimate
of the task's success rate, as with a stored success from a pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherRule:
    """How many further attempts a group gets that would be dropped because all failed.

    Attributes:
        most: Further attempts of one group in all; 0: none.
    """

    most: int = 0

    def attempts(self, rewards: Sequence[float], *, given: int, slots: int) -> int:
        """Return how many to start now.

        Args:
            rewards: Of the group's unmasked attempts, all of which have ended.
            given: Further attempts that it has had.
            slots: Slots that wait, and that nothing else may use.
        """
        if not rewards or any(reward > 0.0 for reward in rewards):
            return 0
        return max(0, min(self.most - given, slots))
