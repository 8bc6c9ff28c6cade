"""Batches: when there is enough to train on, and what is taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dartsim.core.types import Group, Version

Order = Literal["ready", "started", "weights", "in_order"]


class RunningGroup(NamedTuple):
    """A group whose attempts still run, as a batch rule sees it."""

    id: int
    version: Version
    """Newest published version when it was begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """Wait for ``min_groups`` eligible groups and take at most ``max_groups``, the first ones in order.

    Attributes:
        min_groups: Fewest groups of a batch.
        max_groups: Most groups of a batch.
        order: Which come first: ``ready``, those that became ready first (DART, verl; oldest tasks first in its
            released trainer: ``train_bz_min``, ``train_bz_max``); ``started``, those begun first (AReaL, tinker,
            verl's buffer, NeMo-RL's windowed); ``weights``, those of the oldest weights, of these the first begun
            (NeMo-RL's weight_fifo); ``in_order``, those begun first, and the batch waits for each of them (NeMo-RL's
            in_order, slime's one-step-off).
        wait_age: No batch while a running group was begun this many versions ago or more (verl's dropless
            replay buffer); None: never wait.
    """

    min_groups: int = 6
    max_groups: int = 8
    order: Order = "ready"
    wait_age: int | None = None

    def select(
        self, eligible: Sequence[Group], running: Iterable[RunningGroup] = (), version: Version = 0
    ) -> Sequence[Group]:
        """Return the groups of the next batch; none if there are too few, or some must be waited for.

        Args:
            eligible: Groups in the order in which they became ready.
            running: Groups whose attempts still run; looked at only by rules that wait for them.
            version: Weights that would be trained.
        """
        if len(eligible) < self.min_groups:
            return ()
        if self.wait_age is not None and any(version - begun.version >= self.wait_age for begun in running):
            return ()
        if self.order == "ready":
            return eligible[: self.max_groups]
        if self.order == "weights":
            return sorted(eligible, key=_weights)[: self.max_groups]
        chosen = sorted(eligible, key=_begun)
        if self.order == "in_order":
            first_running = min((begun.id for begun in running), default=None)
            if first_running is not None:
                chosen = [group for group in chosen if group.id < first_running]
            if len(chosen) < self.min_groups:
                return ()
        return chosen[: self.max_groups]

    @property
    def looks_at_running(self) -> bool:
        """Whether groups that run decide anything."""
        return self.order == "in_order" or self.wait_age is not None


def _begun(group: Group) -> int:
    return group.id


def _weights(group: Group) -> tuple[Version, int]:
    return (min((t.oldest_version for t in group.trajectories), default=0), group.id)
