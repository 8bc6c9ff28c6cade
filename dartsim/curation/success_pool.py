"""The success pool: a group in which every attempt failed gets one stored success of its task.

    collected ---add----+
                        v
    online --learn--> stored, newest first, at most 8 of a task
                        |
    all failed --rescue-+--> the group without its oldest failure, with one success that keeps its own
                             log-probabilities; or, if none is stored, nothing: the group is dropped

A stored success may be trained more than once, and its weights may be older than the staleness bound allows.
It is the one exception to both rules, and its uses are counted and stored.
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
"""Stored successes of a task; older ones are displaced."""


class Rescue(NamedTuple):
    """A group with a stored success in place of one failure."""

    trajectories: tuple[Trajectory, ...]
    """The group's trajectories now, the success last."""
    replaced: Trajectory
    """The failure that was removed."""
    success: StoredSuccess


class SuccessPool:
    """Stored successes by task, newest first.

    Invariants: never more than ``max_per_task`` of a task; a rescued group has exactly one pooled
    trajectory, of its own task, unchanged; collected successes get numbers below 0 and the group -1, so they are never
    confused with the run's attempts.

    Source: DART (arXiv 2509.23866), experience pool: pre-collected successes, one is put in if all N failed. The
        released code takes the newest success of the task anywhere in the run, used or not, for the oldest row.
    """

    def __init__(self, parameters: PoolConfig | None = None, *, max_per_task: int = MAX_PER_TASK) -> None:
        self._parameters = parameters or PoolConfig()
        self._max_per_task = max_per_task
        self._stored: dict[str, list[StoredSuccess]] = {}
        self._known: set[int] = set()
        """Numbers of the online attempts in the pool."""
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

        Its attempt gets a number below 0 and the group -1; nothing else of it changes.
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

        No two have the same time, for by their times a resumed run knows their order.
        """
        for trajectory in trajectories:
            if self._is_success(trajectory) and trajectory.attempt.id not in self._known:
                self._known.add(trajectory.attempt.id)
                stored = max(now, math.nextafter(self._newest, math.inf))
                self._store(StoredSuccess(trajectory=trajectory, origin=SuccessSource.ONLINE, stored=stored))

    def wanted(self, trajectories: Sequence[Trajectory]) -> bool:
        """Return whether a group gets a stored success: all failed, and there are two.

        The success replaces one failure, and needs another one to be compared with.
        """
        return len(trajectories) >= 2 and all(map(_failed, trajectories))

    def rescue(self, trajectories: Sequence[Trajectory]) -> Rescue | None:
        """Replace the oldest failure of a group by one stored success.

        Returns:
            None, counted, if no success of the task is stored.

        Raises:
            ValueError: If not all of its attempts failed.
        """
        if not trajectories or not all(map(_failed, trajectories)):
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
        """Return a stored success of an attempt's task that is not of its group."""
        stored = self._stored.get(attempt.task.id, ())
        entries = [entry for entry in stored if entry.trajectory.attempt.group != attempt.group]
        if not entries:
            return None
        return entries[0] if self._parameters.choice == "newest" else min(entries, key=lambda entry: entry.uses)


def _failed(trajectory: Trajectory) -> bool:
    return trajectory.reward is not None and failed(trajectory.reward)
