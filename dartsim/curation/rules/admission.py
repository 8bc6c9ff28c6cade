"""Admission: whether a new group may begin, given only counts of groups and attempts.

Every asynchronous system bounds how far its rollouts may run ahead of its trainer, each in its own way. Counted in
groups, there are four such bounds, and each system uses some of them.

    begin -> open (its attempts run) -> ready -> leased to an update -> trained, not yet published -> published
             |------- max_open -------|
                                      |- max_ready -|
             |------------ max_waiting -------------|
             |------------------------------- max_ahead ------------------------------------|
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dartsim.config.sections.curation import AdmissionConfig
from dartsim.core.registry import register


class GroupCounts(NamedTuple):
    """Counts of the groups that began and were neither dropped nor published, by state."""

    open: int = 0
    """Some of their attempts have not ended."""
    ready: int = 0
    """Complete, worth training on, and in no batch."""
    leased: int = 0
    """In the running update."""
    unpublished: int = 0
    """Trained into weights that are not published yet."""


class CachePressure(NamedTuple):
    """The load of the engines' caches."""

    share: float
    """Reserved share of the cache of the engine with the fullest one."""
    waiting: int = 0
    """Requests in engines that wait for space in the cache."""
    running: int = 0
    """Requests with space in the cache."""


@dataclass(frozen=True, slots=True)
class EngineCaches:
    """The engines' caches, as an admission rule sees them."""

    first: int
    read: Callable[[], CachePressure]


class AdmissionRule:
    """Bounds on groups, and perhaps on running attempts; the base of every admission rule.

    Attributes:
        max_ahead: Groups begun that no published weights contain; None: no bound. AReaL's (eta + v + 1) B minus the
            v B that it has consumed, and so in SkyRL and ROLL; verl's (1 + theta) T batches per publication, if a
            dropped group frees its place.
        max_open: Groups with running attempts (AReaL's C, slime's and verl's concurrency).
        max_ready: Complete groups that wait for an update (slime's done queue, prime-rl's lead).
        max_waiting: Groups begun that no update has taken (slime's one batch ahead, OpenRLHF's slot).
        max_running: Attempts that may run; None: one per slot. It may change over time.
    """

    Parameters: ClassVar[type[AdmissionConfig]] = AdmissionConfig

    def __init__(
        self, parameters: AdmissionConfig, *, batch_groups: int, group_size: int, caches: EngineCaches | None = None
    ) -> None:
        self.max_ahead = parameters.groups(parameters.ahead_batches, batch_groups)
        self.max_open = parameters.groups(parameters.open_batches, batch_groups)
        self.max_ready = parameters.groups(parameters.ready_batches, batch_groups)
        self.max_waiting = parameters.groups(parameters.waiting_batches, batch_groups)
        self.max_running: int | None = None

    def blocked_by(self, counts: GroupCounts) -> str | None:
        """Return which bound is reached, as a sentence; None if another group may begin."""
        counted = (
            ("ahead of published weights", sum(counts), self.max_ahead),
            ("running", counts.open, self.max_open),
            ("ready", counts.ready, self.max_ready),
            ("waiting for an update", counts.open + counts.ready, self.max_waiting),
        )
        for what, count, most in counted:
            if most is not None and count >= most:
                return f"{count} groups are {what}, at most {most} may be"
        return None

    @property
    def unbounded(self) -> bool:
        """Whether another group may always begin; false for subclasses that override ``blocked_by``."""
        return type(self).blocked_by is AdmissionRule.blocked_by and not any(
            most is not None for most in (self.max_ahead, self.max_open, self.max_ready, self.max_waiting)
        )

    def attempt_ended(self) -> None:
        """Note that an attempt has ended."""

    def adjust(self, now: float, running: int) -> bool:
        """Adjust ``max_running``; return whether to withdraw the youngest groups until it is met."""
        return False


@register("admission", "bounds")
class GroupBounds(AdmissionRule):
    """The four bounds on groups, and nothing else."""
