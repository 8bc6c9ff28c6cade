"""What became of every trajectory, in memory: enough for a simulation, and it checks every transition.

    recorded --eligible--> eligible --lease--> leased --trained--> trained
        |                     |    ^             |
        +-- lease             |    +--release----+   (an update failed; back to where it was)
        +-- drop -------------+--> dropped(reason)

Only trajectories that may still change are kept, so that memory does not grow with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from dartsim.core.errors import InvariantViolated
from dartsim.core.ports import Resumable
from dartsim.core.types import Batch, Drop, Group, Trajectory, Version
from dartsim.store.successes import own


class TrajectoryState(StrEnum):
    """Where a stored trajectory is."""

    RECORDED = "recorded"
    """It ended; its group is open."""
    ELIGIBLE = "eligible"
    """Its group is complete and may be trained on."""
    LEASED = "leased"
    """It is in the batch of an update that has not finished."""
    TRAINED = "trained"
    """It is part of a finished update."""
    DROPPED = "dropped"
    """It is not trained on, for a reason."""


WAITING = (TrajectoryState.RECORDED, TrajectoryState.ELIGIBLE)
"""States of what no update has taken."""
LIVE = (*WAITING, TrajectoryState.LEASED)
"""States that are not the last one."""


class MemoryStore:
    """A store of states that keeps no trajectory.

    Args:
        live: States of trajectories that were stored before and may still change.
        judged: Those of them that became eligible once; a release makes them eligible again.
        update: The last finished update; their numbers rise.

    Raises:
        InvariantViolated: On any transition that the diagram does not have, such as training twice; then
            nothing has changed.
    """

    def __init__(
        self,
        live: Mapping[int, TrajectoryState] = MappingProxyType({}),
        *,
        judged: frozenset[int] = frozenset(),
        update: int = 0,
    ) -> None:
        self._live = dict(live)
        self._judged = set(judged)
        self.update = update
        self.counts: Counter[TrajectoryState] = Counter(self._live.values())
        self.reasons: Counter[Drop] = Counter()

    @property
    def live(self) -> Mapping[int, TrajectoryState]:
        """States of the trajectories that may still change, by attempt."""
        return MappingProxyType(self._live)

    def record(self, trajectory: Trajectory) -> None:
        """Keep a finished attempt."""
        attempt = trajectory.attempt.id
        if attempt in self._live:
            raise InvariantViolated(f"attempt {attempt} was recorded twice")
        self._live[attempt] = TrajectoryState.RECORDED
        self.counts[TrajectoryState.RECORDED] += 1

    def eligible(self, group: Group) -> None:
        """Mark a group's own trajectories as eligible."""
        attempts = _attempts(own(group))
        self._move(attempts, (TrajectoryState.RECORDED,), TrajectoryState.ELIGIBLE)
        self._judged.update(attempts)

    def lease(self, batch: Batch) -> None:
        """Mark as leased."""
        attempts = _attempts(batch.trajectories)
        self._check(attempts, WAITING, TrajectoryState.LEASED)
        self._check_update(batch)
        self._move(attempts, WAITING, TrajectoryState.LEASED)

    def release(self, batch: Batch) -> None:
        """Mark as what it was before: eligible, or only recorded."""
        self.give_back(_attempts(batch.trajectories))

    def give_back(self, attempts: Sequence[int]) -> None:
        """Release by number."""
        self._move(attempts, (TrajectoryState.LEASED,), TrajectoryState.RECORDED)
        for attempt in self._judged.intersection(attempts):
            self._live[attempt] = TrajectoryState.ELIGIBLE
            self.counts[TrajectoryState.RECORDED] -= 1
            self.counts[TrajectoryState.ELIGIBLE] += 1

    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        """Mark as trained and forget."""
        attempts = _attempts(batch.trajectories)
        self._check(attempts, (TrajectoryState.LEASED,), TrajectoryState.TRAINED)
        self._check_update(batch)
        self._move(attempts, (TrajectoryState.LEASED,), TrajectoryState.TRAINED)
        self.update = batch.update

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark as dropped and forget."""
        self.give_up(_attempts(trajectories), reason)

    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        """Drop by number: what is known of a trajectory that cannot be read back."""
        self._move(attempts, WAITING, TrajectoryState.DROPPED)
        self.reasons[reason] += len(attempts)

    def recover(self) -> Sequence[int]:
        """Return what was leased to an update that will not finish, and give it back."""
        leased = [attempt for attempt, state in self._live.items() if state is TrajectoryState.LEASED]
        self.give_back(leased)
        return leased

    def settle(self, source: Resumable, *, now: bool = False) -> None:
        """Nothing outlives the run: nothing is kept."""

    def suspend(self) -> None:
        """Go on all the same: what is in memory is not resumed."""

    def close(self) -> None:
        """Nothing is pending."""

    def _check_update(self, batch: Batch) -> None:
        if batch.update <= self.update:
            raise InvariantViolated(f"update {batch.update} cannot be done any more: update {self.update} is finished")

    def _check(self, attempts: Sequence[int], old: tuple[TrajectoryState, ...], new: TrajectoryState) -> None:
        if len(set(attempts)) < len(attempts):
            raise InvariantViolated(f"an attempt is named twice among those to become {new.value}: {attempts}")
        for attempt in attempts:
            found = self._live.get(attempt)
            if found not in old:
                state = "not live" if found is None else found.value
                wanted = " or ".join(old)
                raise InvariantViolated(f"attempt {attempt} is {state}, and only a {wanted} one can become {new.value}")

    def _move(self, attempts: Sequence[int], old: tuple[TrajectoryState, ...], new: TrajectoryState) -> None:
        self._check(attempts, old, new)
        live = self._live
        for attempt in attempts:
            self.counts[live[attempt]] -= 1
            if new in LIVE:
                live[attempt] = new
            else:
                del live[attempt]
                self._judged.discard(attempt)
        self.counts[new] += len(attempts)


def _attempts(trajectories: Sequence[Trajectory]) -> list[int]:
    return [trajectory.attempt.id for trajectory in trajectories]
