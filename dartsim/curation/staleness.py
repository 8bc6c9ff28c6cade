"""Staleness: how old a trajectory's weights may be when it is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dartsim.core.types import Trajectory, Version

Measure = Literal["oldest", "newest", "start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessRule:
    """A bound on (version trained on) - (version that generated the trajectory).

    Attributes:
        bound: Largest allowed value; None allows any.
        measured_by: Which of a trajectory's versions counts: its oldest; its newest as in DART's released code, where
            a trajectory carries the version of its last step only; or what was published when it was admitted, as
            verl's replay buffer, prime-rl and ROLL count.
    """

    bound: int | None = 1
    measured_by: Measure = "oldest"

    def fresh(self, trajectory: Trajectory, version: Version) -> bool:
        """Return whether the trajectory may be trained on with these weights."""
        if self.bound is None:
            return True
        return version - self.made(trajectory) <= self.bound

    def made(self, trajectory: Trajectory) -> Version:
        """Return the version of a trajectory that counts."""
        if self.measured_by == "oldest":
            return trajectory.oldest_version
        return trajectory.newest_version if self.measured_by == "newest" else trajectory.attempt.version

    def hopeless(self, begun: Version, version: Version) -> bool:
        """Return whether what was begun under ``begun`` and still runs can no longer be fresh.

        Only where its start is what counts, or bounds what counts: its oldest weights are at most as new.
        """
        return self.bound is not None and self.measured_by == "start" and version - begun > self.bound
