"""What became of every trajectory, in memory: enough for a simulation, and it checks every transition.

    recorded -> leased -> trained
        ^         |
        +---------+   (an update failed)
    recorded -> dropped(reason)

Only trajectories that may still change are kept, so that memory does not grow with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from dartsim.errors import InvariantViolated
from dartsim.types import Batch, Drop, Trajectory, Version


class TrajectoryState(StrEnum):
    """Where a stored trajectory is."""

    RECORDED = "recorded"
    LEASED = "leased"
    TRAINED = "trained"
    DROPPED = "dropped"


class MemoryStore:
    """A store of states that keeps no trajectory.

    Args:
        live: States of trajectories that were stored before and may still change.

    Raises:
        InvariantViolated: On any transition that the diagram does not have, such as training twice; then
            nothing has changed.
    """

    def __init__(self, live: Mapping[int, TrajectoryState] = MappingProxyType({})) -> None:
        self._live = dict(live)
        self.counts: Counter[TrajectoryState] = Counter(self._live.values())
        self.reasons: Counter[Drop] = Counter()

    def record(self, trajectory: Trajectory) -> None:
        """Keep a finished attempt."""
        attempt = trajectory.attempt.id
        if attempt in self._live:
            raise InvariantViolated(f"attempt {attempt} was recorded twice")
        self._live[attempt] = TrajectoryState.RECORDED
        self.counts[TrajectoryState.RECORDED] += 1

    def lease(self, batch: Batch) -> None:
        """Mark as leased."""
        self._move(batch.trajectories, TrajectoryState.RECORDED, TrajectoryState.LEASED)

    def release(self, batch: Batch) -> None:
        """Mark as recorded again."""
        self._move(batch.trajectories, TrajectoryState.LEASED, TrajectoryState.RECORDED)

    def trained(self, batch: Batch, version: Version) -> None:
        """Mark as trained and forget."""
        self._move(batch.trajectories, TrajectoryState.LEASED, TrajectoryState.TRAINED)

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark as dropped and forget."""
        self._move(trajectories, TrajectoryState.RECORDED, TrajectoryState.DROPPED)
        self.reasons[reason] += len(trajectories)

    def close(self) -> None:
        """Nothing is pending."""

    def _move(self, trajectories: Sequence[Trajectory], old: TrajectoryState, new: TrajectoryState) -> None:
        live = self._live
        attempts = [trajectory.attempt.id for trajectory in trajectories]
        if len(set(attempts)) < len(attempts):
            raise InvariantViolated(f"an attempt is named twice among those to become {new.value}: {attempts}")
        for attempt in attempts:
            found = live.get(attempt)
            if found is not old:
                state = "not live" if found is None else found.value
                raise InvariantViolated(
                    f"attempt {attempt} is {state}, and only a {old.value} one can become {new.value}"
                )
        for attempt in attempts:
            if new in (TrajectoryState.TRAINED, TrajectoryState.DROPPED):
                del live[attempt]
            else:
                live[attempt] = new
        self.counts[old] -= len(attempts)
        self.counts[new] += len(attempts)
