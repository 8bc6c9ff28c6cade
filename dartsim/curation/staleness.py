"""Staleness: how old a trajectory's weights may be when it is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dartsim.types import Trajectory, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessRule:
    """A bound on (version trained on) - (version that generated the trajectory).

    Attributes:
        bound: Largest allowed value; None allows any.
        measured_by: Which of a trajectory's versions counts: its oldest, or its newest as in DART's released
            code, where a trajectory carries the version of its last step only.
    """

    bound: int | None = 1
    measured_by: Literal["oldest", "newest"] = "oldest"

    def fresh(self, trajectory: Trajectory, version: Version) -> bool:
        """Return whether the trajectory may be trained on with these weights."""
        if self.bound is None:
            return True
        made = trajectory.oldest_version if self.measured_by == "oldest" else trajectory.newest_version
        return version - made <= self.bound
