"""Admission: whether a new group may be begun, from counts of groups alone.

Every asynchronous system bounds how far its rollouts may run ahead of its trainer, each by a count of its own. In
groups they are four places to count at, and a system is a choice of bounds.

    begin -> open (its attempts run) -> ready -> leased to an update -> trained, not yet published -> published
             |------- max_open -------|
                                      |- max_ready -|
             |------------ max_waiting -------------|
             |------------------------------- max_ahead ------------------------------------|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class GroupCounts(NamedTuple):
    """Where the groups are that were begun and neither dropped nor published."""

    open: int = 0
    """RunningGroup, and some attempt has not ended."""
    ready: int = 0
    """Complete, worth training on, and in no batch."""
    leased: int = 0
    """In the update that runs."""
    unpublished: int = 0
    """Trained, but into weights that are not published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRule:
    """Bounds on groups; None is no bound.

    Attributes:
        max_ahead: Groups begun that no published weights contain. AReaL's (eta + v + 1) B less the v B that it has
            consumed; SkyRL's and ROLL's the same; verl's (1 + theta) T batches a publication, if a dropped group
            gives its place back.
        max_open: Groups whose attempts run (AReaL's C, slime's and verl's concurrency).
        max_ready: Complete groups that wait for an update (slime's done queue, prime-rl's lead).
        max_waiting: Groups begun that no update has taken (slime's one batch ahead, OpenRLHF's slot).
    """

    max_ahead: int | None = None
    max_open: int | None = None
    max_ready: int | None = None
    max_waiting: int | None = None

    def room(self, places: GroupCounts) -> bool:
        """Return whether one more group may be begun."""
        return self.lacks(places) is None

    def lacks(self, places: GroupCounts) -> str | None:
        """Return the first bound that is reached, in words; None if another group may be begun."""
        counted = (
            ("ahead of published weights", sum(places), self.max_ahead),
            ("running", places.open, self.max_open),
            ("ready", places.ready, self.max_ready),
            ("waiting for an update", places.open + places.ready, self.max_waiting),
        )
        for what, count, most in counted:
            if most is not None and count >= most:
                return f"{count} groups are {what}, at most {most} may be"
        return None

    @property
    def unbounded(self) -> bool:
        """Whether it always has room."""
        return (self.max_ahead, self.max_open, self.max_ready, self.max_waiting) == (None,) * 4
