"""``GroupGrader``: what attempts and groups teach about their tasks, and whether a complete group may be trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dartsim.core.types import Drop, Group, StoredSuccess, Trajectory, Version
from dartsim.curation.open_groups import OpenGroup
from dartsim.curation.rules import Rules


class GradedGroup(NamedTuple):
    """What becomes of a complete group."""

    group: Group
    """What it is trained on; with a stored success, if it was rescued by one."""
    reason: Drop | None
    """Why it is dropped; None: it may be trained on."""
    replaced: Trajectory | None = None
    """The failure whose place a stored success took."""


class GroupGrader:
    """What is known about tasks from the attempts on them.

    Args:
        rules: What is learned, and which groups may be trained on.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def learn(self, trajectory: Trajectory, *, now: float) -> None:
        """Take in how an attempt ended, at this loop time."""
        self._rules.turn_limits.learn((trajectory,))
        if self._rules.pool is not None:
            self._rules.pool.learn((trajectory,), now=now)

    def verdict(self, opened: OpenGroup, *, now: float, version: Version) -> GradedGroup:
        """GroupGrader a group that has all its attempts, and take in how they ended.

        Args:
            opened: The group.
            now: Loop time, seconds.
            version: Newest published version.
        """
        usable, task = tuple(opened.usable), opened.task
        rewards = rewards_of(usable)
        self._rules.attempts.learn(task.id, rewards)
        if self._rules.task_filter is not None:
            self._rules.task_filter.learn(task.id, rewards)
        reason = self.reason_to_drop(usable)
        # A success takes the place of one failure, and needs another one to be compared with.
        if self._rules.pool is not None and reason is not Drop.TOO_SMALL and len(usable) > 1 and not any(rewards):
            rescue = self._rules.pool.rescue(opened.id, usable, now=now, version=version)
            if rescue is not None:
                group = Group(opened.id, task, rescue.trajectories, now)
                return GradedGroup(group, self.reason_to_drop(rescue.trajectories), rescue.replaced)
        return GradedGroup(Group(opened.id, task, usable, now), reason)

    def reason_to_drop(self, trajectories: Sequence[Trajectory]) -> Drop | None:
        """Return why a group of unmasked trajectories is not worth training on, or None if it is."""
        return self._rules.group_filter.reason_to_drop(trajectories)

    def trained(self, groups: Sequence[Group]) -> None:
        """Count the stored successes among what was trained."""
        if self._rules.pool is not None:
            self._rules.pool.trained(groups)

    def successes(self) -> Sequence[StoredSuccess]:
        """Return the stored successes."""
        return () if self._rules.pool is None else self._rules.pool.entries()

    def state(self) -> dict[str, Any]:
        """Return everything from which ``restore`` goes on, apart from stored successes, as JSON can say it."""
        return {
            "attempts": self._rules.attempts.state(),
            "turn_limits": self._rules.turn_limits.state(),
            "pool": None if self._rules.pool is None else self._rules.pool.state(),
            "task_filter": None if self._rules.task_filter is None else self._rules.task_filter.state(),
        }

    def restore(self, saved: Mapping[str, Any], successes: Sequence[StoredSuccess]) -> None:
        """Take up what ``state`` returned, and the stored successes in the order in which they were stored."""
        self._rules.attempts.restore(saved["attempts"])
        self._rules.turn_limits.restore(saved["turn_limits"])
        if self._rules.pool is not None:
            self._rules.pool.restore(successes, saved["pool"] or {})
        if self._rules.task_filter is not None and saved["task_filter"] is not None:
            self._rules.task_filter.restore(saved["task_filter"])


def rewards_of(trajectories: Sequence[Trajectory]) -> list[float]:
    """Return the rewards of unmasked trajectories."""
    return [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
