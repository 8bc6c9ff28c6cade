"""The success pool: a group in which every attempt failed gets one stored success of its task.

    collected ---add----+
                        v
    online --learn--> stored, newest first, at most 8 of a task
                        |
    all failed --rescue-+--> the group with one success, which keeps its own log-probabilities, in place of its
                             oldest failure; if none is stored, the group is dropped

A stored success may be trained on more than once, and its weights may be older than the staleness bound allows. It is
the only exception to both rules, so its uses are counted and stored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dartsim.config.sections.curation import PoolConfig
from dartsim.core.rewards import SUCCESS, failed, reaches
from dartsim.core.types import Attempt, Group, StoredSuccess, SuccessSource, Trajectory

MAX_PER_TASK = 8
"""Maximum number of stored successes of a task; older ones are displaced."""


class Rescue(NamedTuple):
    """A group with a stored success in place of one failure."""

    trajectories: tuple[Trajectory, ...]
    """The group's trajectories, the success last."""
    replaced: Trajectory
    """The failure that was removed."""
    success: StoredSuccess


class SuccessPool:
    """Stored successes by task, newest first.

    Invariants: never more than ``max_per_task`` per task; a rescued group has exactly one pooled trajectory, of its own
    task, unchanged; collected successes get ids below 0 and the group -1, so they are never confused with the run's
    attempts.

    Source: DART (arXiv 2509.23866), experience pool: a pre-collected success is added if all N attempts failed. The
        released code replaces the oldest row with the run's newest success at the task, used or not.
    """

    def __init__(self, parameters: PoolConfig | None = None, *, max_per_task: int = MAX_PER_TASK) -> None:
        self._parameters = parameters or PoolConfig()
        self._max_per_task = max_per_task
        self._stored: dict[str, list[StoredSuccess]] = {}
        self._known: set[int] = set()
        """Ids of the online attempts in the pool."""
        self._collected = 0
        self._newest = -math.inf
        """When the newest success was stored."""
        self.counts: Counter[str] = Counter()
        """``stored_collected``, ``stored_online``, ``not_a_success``, ``displaced``, ``rescued``, ``none_stored``,
        and ``trained``: pooled trajectories in finished updates."""

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._stored.values())

    def stored(self, task_id: str) -> Sequence[StoredSuccess]:
        """Return the stored successes of a task, newest first."""
        return tuple(self._stored.get(task_id, ()))

    def learned(self) -> list[Trajectory]:
        """Return the newest success of the run's own attempts at each task."""
        own: list[Trajectory] = []
        for entries in self._stored.values():
            own += [entry.trajectory for entry in entries if entry.origin is SuccessSource.ONLINE][:1]
        return own

    def add(self, trajectory: Trajectory, *, now: float) -> bool:
        """Store a success that was collected before the run; return False if it is not a success.

        Its attempt gets an id below 0 and the group -1; nothing else changes.
        """
        if not self._is_success(trajectory):
            self.counts["not_a_success"] += 1
            return False
        self._collected += 1
        attempt = replace(trajectory.attempt, id=-self._collected, group=-1)
        self._store(
            StoredSuccess(trajectory=replace(trajectory, attempt=attempt), origin=SuccessSource.COLLECTED, stored=now)
        )
        return True

    def learn(self, trajectories: Sequence[Trajectory], *, now: float) -> None:
        """Store the successes among finished attempts of the run, each at most once.

        No two get the same time, because a resumed run restores their order by time.
        """
        for trajectory in trajectories:
            if self._is_success(trajectory) and trajectory.attempt.id not in self._known:
                self._known.add(trajectory.attempt.id)
                stored = max(now, math.nextafter(self._newest, math.inf))
                self._store(StoredSuccess(trajectory=trajectory, origin=SuccessSource.ONLINE, stored=stored))

    def wanted(self, trajectories: Sequence[Trajectory]) -> bool:
        """Return whether a group needs a stored success: at least two attempts, all of them failures.

        The success replaces one failure and needs another to be compared with.
        """
        return len(trajectories) >= 2 and all(map(_is_failure, trajectories))

    def rescue(self, trajectories: Sequence[Trajectory]) -> Rescue | None:
        """Replace the oldest failure of a group with a stored success.

        Returns:
            None if no success of the task is stored, which is counted.

        Raises:
            ValueError: If some attempt did not fail.
        """
        if not trajectories or not all(map(_is_failure, trajectories)):
            raise ValueError(f"only a group of failures is rescued, got {[t.reward for t in trajectories]}")
        success = self._choose(trajectories[0].attempt)
        if success is None:
            self.counts["none_stored"] += 1
            return None
        success.uses += 1
        self.counts["rescued"] += 1
        oldest = min(trajectories, key=lambda t: (t.finished, t.attempt.id))
        rest = tuple(t for t in trajectories if t is not oldest)
        return Rescue((*rest, success.trajectory), oldest, success)

    def entries(self) -> list[StoredSuccess]:
        return [entry for entries in self._stored.values() for entry in entries]

    def state(self) -> dict[str, int]:
        """Return the counts; the stored successes themselves are ``entries``."""
        return dict(self.counts)

    def restore(self, entries: Iterable[StoredSuccess], counts: Mapping[str, int]) -> None:
        self._stored = {}
        for entry in entries:
            self._stored.setdefault(entry.trajectory.attempt.task.id, []).insert(0, entry)
        kept = self.entries()
        self._known = {entry.trajectory.attempt.id for entry in kept if entry.origin is SuccessSource.ONLINE}
        self._collected = max((0, *(-entry.trajectory.attempt.id for entry in kept)))
        self._newest = max((entry.stored for entry in kept), default=-math.inf)
        self.counts = Counter(counts)

    def trained(self, groups: Sequence[Group]) -> None:
        self.counts["trained"] += sum(len(group.pooled) for group in groups)

    def _is_success(self, trajectory: Trajectory) -> bool:
        reward = trajectory.reward
        return reward is not None and reaches(reward, SUCCESS) and bool(trajectory.turns)

    def _store(self, entry: StoredSuccess) -> None:
        entries = self._stored.setdefault(entry.trajectory.attempt.task.id, [])
        entries.insert(0, entry)
        self._newest = max(self._newest, entry.stored)
        self.counts[f"stored_{entry.origin}"] += 1
        if len(entries) > self._max_per_task:
            self._known.discard(entries.pop().trajectory.attempt.id)
            self.counts["displaced"] += 1

    def _choose(self, attempt: Attempt) -> StoredSuccess | None:
        """Return a stored success of an attempt's task from another group."""
        stored = self._stored.get(attempt.task.id, ())
        entries = [entry for entry in stored if entry.trajectory.attempt.group != attempt.group]
        if not entries:
            return None
        return entries[0] if self._parameters.choice == "newest" else min(entries, key=lambda entry: entry.uses)


def _is_failure(trajectory: Trajectory) -> bool:
    return trajectory.reward is not None and failed(trajectory.reward)
