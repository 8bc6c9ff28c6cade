"""Batches: when there is enough to train on, and what is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dartsim.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """Wait for ``min_groups`` eligible groups and take at most ``max_groups``, the longest ready first.

    Source: DART's released trainer (``train_bz_min``, ``train_bz_max``; oldest tasks first).
    """

    min_groups: int = 6
    max_groups: int = 8

    def select(self, eligible: Sequence[Group]) -> Sequence[Group]:
        """Return the groups of the next batch; none if there are too few.

        Args:
            eligible: Groups in the order in which they became ready.
        """
        if len(eligible) < self.min_groups:
            return ()
        return eligible[: self.max_groups]
