"""Batch rules: when there are enough groups to train on, and which of them to take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from typing_extensions import override

from dartsim.config.sections.curation import BatchConfig
from dartsim.core.registry import register
from dartsim.core.types import Group, Version


class RunningGroup(NamedTuple):
    """A group with running attempts."""

    id: int
    version: Version
    """Oldest version among its attempts: the newest published one when each was admitted."""


class BatchRule(ABC):
    """Waits for ``min_groups`` eligible groups, and takes the first in its order, at most ``max_groups``."""

    Parameters: ClassVar[type[BatchConfig]] = BatchConfig

    def __init__(self, parameters: BatchConfig) -> None:
        self.parameters = parameters
        self.looks_at_running = parameters.wait_age is not None

    @abstractmethod
    def order(self, eligible: Sequence[Group], running: Iterable[RunningGroup]) -> Sequence[Group]:
        """Return the groups that may be taken, in order."""

    def select(
        self, eligible: Sequence[Group], running: Iterable[RunningGroup] = (), version: Version = 0
    ) -> Sequence[Group]:
        """Return the groups of the next batch; none if there are too few or it must wait for running groups.

        Args:
            eligible: Groups in the order in which they became ready.
            running: Groups with running attempts, for rules that wait for them.
            version: The version that would be trained on the batch.
        """
        sizes = self.parameters
        if len(eligible) < sizes.min_groups:
            return ()
        if self.looks_at_running:
            running = tuple(running)
        if sizes.wait_age is not None and any(version - group.version >= sizes.wait_age for group in running):
            return ()
        chosen = self.order(eligible, running)
        return () if len(chosen) < sizes.min_groups else chosen[: sizes.max_groups]


@register("batch", "ready")
class FirstReady(BatchRule):
    """The groups that became ready first (DART, verl; oldest tasks first in DART's released trainer)."""

    @override
    def order(self, eligible: Sequence[Group], running: Iterable[RunningGroup]) -> Sequence[Group]:
        return eligible


@register("batch", "started")
class FirstStarted(BatchRule):
    """The groups that began first (AReaL, tinker, verl's buffer, NeMo-RL's windowed)."""

    @override
    def order(self, eligible: Sequence[Group], running: Iterable[RunningGroup]) -> Sequence[Group]:
        return sorted(eligible, key=_begun)


@register("batch", "weights")
class OldestWeights(BatchRule):
    """The groups with the oldest weights, and among these the ones that began first (NeMo-RL's weight_fifo)."""

    @override
    def order(self, eligible: Sequence[Group], running: Iterable[RunningGroup]) -> Sequence[Group]:
        return sorted(eligible, key=_weights)


@register("batch", "in_order")
class InOrder(BatchRule):
    """The groups that began first, waiting for each of them (NeMo-RL's in_order, slime's one-step-off)."""

    def __init__(self, parameters: BatchConfig) -> None:
        super().__init__(parameters)
        self.looks_at_running = True

    @override
    def order(self, eligible: Sequence[Group], running: Iterable[RunningGroup]) -> Sequence[Group]:
        first_running = min((group.id for group in running), default=None)
        chosen = sorted(eligible, key=_begun)
        return chosen if first_running is None else [group for group in chosen if group.id < first_running]


def _begun(group: Group) -> int:
    return group.id


def _weights(group: Group) -> tuple[Version, int]:
    return (min((t.oldest_version for t in group.trajectories), default=0), group.id)
