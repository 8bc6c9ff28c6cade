"""``MemoryStore``: the states of trajectories in memory, for simulations, with every transition checked.

    recorded --eligible--> eligible --lease--> leased --trained--> trained
        |                     |    ^             |
        +-- lease             |    +--release----+   (an update failed: back to the state before the lease)
        +-- drop -------------+--> dropped(reason)

Only trajectories that may still change are kept, so memory does not grow with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from dartsim.core.errors import InvariantViolated
from dartsim.core.ports import Resumable, Store
from dartsim.core.types import (
    LIVE,
    WAITING,
    Batch,
    Drop,
    Group,
    Recovered,
    Restored,
    Trajectory,
    TrajectoryState,
    Version,
)


class MemoryStore(Store):
    """A store that keeps the states of trajectories until the process ends.

    Args:
        live: States of already stored trajectories that may still change.
        judged: Those of them that were once eligible; a release makes them eligible again.
        update: The last finished update; later ones have higher numbers.
    """

    resumable = False
    prepare_files = None

    def __init__(
        self,
        live: Mapping[int, TrajectoryState] = MappingProxyType({}),
        *,
        judged: frozenset[int] = frozenset(),
        update: int = 0,
    ) -> None:
        self._live = dict(live)
        self._judged = set(judged)
        self._counts = Counter(self._live.values())
        self._documents: dict[str, Any] = {}
        self.update = update
        self.reasons: Counter[Drop] = Counter()

    @property
    @override
    def live(self) -> Mapping[int, TrajectoryState]:
        return MappingProxyType(self._live)

    @property
    @override
    def counts(self) -> Mapping[TrajectoryState, int]:
        return self._counts

    @override
    def record(self, trajectory: Trajectory) -> None:
        attempt = trajectory.attempt.id
        if attempt in self._live:
            raise InvariantViolated(f"attempt {attempt} was recorded twice")
        self._live[attempt] = TrajectoryState.RECORDED
        self._counts[TrajectoryState.RECORDED] += 1

    @override
    def eligible(self, group: Group) -> None:
        attempts = _attempts(group.own)
        self._move(attempts, (TrajectoryState.RECORDED,), TrajectoryState.ELIGIBLE)
        self._judged.update(attempts)

    @override
    def lease(self, batch: Batch) -> None:
        attempts = _attempts(batch.trajectories)
        self._check(attempts, WAITING, TrajectoryState.LEASED)
        self._check_update(batch)
        self._move(attempts, WAITING, TrajectoryState.LEASED)

    @override
    def release(self, batch: Batch) -> None:
        self._release(_attempts(batch.trajectories))

    def _release(self, attempts: Sequence[int]) -> None:
        self._move(attempts, (TrajectoryState.LEASED,), TrajectoryState.RECORDED)
        self._move(list(self._judged.intersection(attempts)), (TrajectoryState.RECORDED,), TrajectoryState.ELIGIBLE)

    @override
    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        attempts = _attempts(batch.trajectories)
        self._check(attempts, (TrajectoryState.LEASED,), TrajectoryState.TRAINED)
        self._check_update(batch)
        self._move(attempts, (TrajectoryState.LEASED,), TrajectoryState.TRAINED)
        self.update = batch.update

    @override
    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        self.give_up(_attempts(trajectories), reason)

    @override
    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        self._move(attempts, WAITING, TrajectoryState.DROPPED)
        self.reasons[reason] += len(attempts)

    @override
    def settle(self, source: Resumable, *, now: bool = False) -> None:
        pass

    @override
    def suspend(self) -> None:
        pass

    @override
    def close(self) -> None:
        pass

    @override
    def save(self, documents: Mapping[str, Any]) -> None:
        self._documents.update(documents)

    @override
    def documents(self) -> Mapping[str, Any]:
        return dict(self._documents)

    @override
    def recover(self) -> Recovered:
        leased = tuple(attempt for attempt, state in self._live.items() if state is TrajectoryState.LEASED)
        self._release(leased)
        return Recovered(update=self.update, version=self.update, returned=leased)

    @override
    def restore(self, recovered: Recovered, known: Collection[int]) -> Restored:
        return Restored(version=recovered.version, live=frozenset(self._live))

    @override
    def clear(self) -> None:
        MemoryStore.__init__(self)

    def _check_update(self, batch: Batch) -> None:
        if batch.update <= self.update:
            raise InvariantViolated(f"update {batch.update} cannot be done any more: update {self.update} is finished")

    def _check(self, attempts: Sequence[int], old: tuple[TrajectoryState, ...], new: TrajectoryState) -> None:
        if len(set(attempts)) < len(attempts):
            raise InvariantViolated(f"an attempt is named twice among those to become {new.value}: {attempts}")
        for attempt in attempts:
            present = self._live.get(attempt)
            if present not in old:
                state = "not live" if present is None else present.value
                allowed = " or ".join(old)
                raise InvariantViolated(
                    f"attempt {attempt} is {state}, and only a {allowed} one can become {new.value}"
                )

    def _move(self, attempts: Sequence[int], old: tuple[TrajectoryState, ...], new: TrajectoryState) -> None:
        self._check(attempts, old, new)
        live = self._live
        for attempt in attempts:
            self._counts[live[attempt]] -= 1
            if new in LIVE:
                live[attempt] = new
            else:
                del live[attempt]
                self._judged.discard(attempt)
        self._counts[new] += len(attempts)


def _attempts(trajectories: Sequence[Trajectory]) -> list[int]:
    return [trajectory.attempt.id for trajectory in trajectories]
