"""Which groups carry a learning signal, and how stale a trajectory may be."""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.config.sections.curation import GroupsConfig, StalenessConfig
from dartsim.core.rewards import all_equal, failed, reaches
from dartsim.core.types import Drop, Trajectory, Version


class GroupFilter:
    """Decides which complete groups may be trained on."""

    def __init__(self, parameters: GroupsConfig | None = None) -> None:
        self.parameters = parameters or GroupsConfig()

    def reason_to_drop(self, trajectories: Sequence[Trajectory]) -> Drop | None:
        """Return why a group of unmasked trajectories is not worth training on, or None if it is."""
        drop = self.parameters
        rewards = [t.reward for t in trajectories if t.reward is not None]
        if len(rewards) < drop.min_size:
            return Drop.TOO_SMALL
        mean = sum(rewards) / len(rewards)
        if drop.drop_all_failed and failed(mean):
            return Drop.ALL_FAILED
        if drop.drop_solved and reaches(mean, 1.0):
            return Drop.ALL_SOLVED
        between = not failed(mean) and not reaches(mean, 1.0)
        if drop.drop_equal and between and len(rewards) > 1 and all_equal(rewards):
            return Drop.NO_SIGNAL
        return None


class StalenessRule:
    """A bound on (version trained on) - (version that generated the trajectory)."""

    def __init__(self, parameters: StalenessConfig | None = None) -> None:
        self.parameters = parameters or StalenessConfig()
        self._max = self.parameters.max_staleness
        self._measured_by = self.parameters.measured_by

    def fresh(self, trajectory: Trajectory, version: Version) -> bool:
        """Return whether the trajectory may be trained on with these weights."""
        return self._max is None or version - self.reference_version(trajectory) <= self._max

    def reference_version(self, trajectory: Trajectory) -> Version:
        """Return the version from which staleness is measured."""
        if self._measured_by == "oldest":
            return trajectory.oldest_version
        return trajectory.newest_version if self._measured_by == "newest" else trajectory.attempt.version

    def hopeless(self, begun: Version, version: Version) -> bool:
        """Return whether a running group that began under version ``begun`` is certain to be too stale.

        Known only if staleness is measured from the start.
        """
        return self._max is not None and self._measured_by == "start" and version - begun > self._max
