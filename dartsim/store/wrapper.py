"""``StoreWrapper``: the base class of stores that change or check some calls of another store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dartsim.core.ports import Resumable, Store
from dartsim.core.types import (
    Batch,
    Drop,
    Group,
    Recovered,
    Restored,
    Trajectory,
    TrajectoryState,
    Version,
)


class StoreWrapper(Store):
    """A store that passes every call to another one."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def resumable(self) -> bool:
        return self._inner.resumable

    @property
    def live(self) -> Mapping[int, TrajectoryState]:
        return self._inner.live

    @property
    def counts(self) -> Mapping[TrajectoryState, int]:
        return self._inner.counts

    @property
    def num_bytes(self) -> int:
        return self._inner.num_bytes

    @property
    def max_bytes(self) -> int | None:
        return self._inner.max_bytes

    @property
    def prepare_files(self) -> Callable[[Any, str | None], None] | None:
        return self._inner.prepare_files

    def record(self, trajectory: Trajectory) -> None:
        self._inner.record(trajectory)

    def eligible(self, group: Group) -> None:
        self._inner.eligible(group)

    def lease(self, batch: Batch) -> None:
        self._inner.lease(batch)

    def release(self, batch: Batch) -> None:
        self._inner.release(batch)

    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        self._inner.trained(batch, version, checkpoint=checkpoint)

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        self._inner.drop(trajectories, reason)

    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        self._inner.give_up(attempts, reason)

    def settle(self, source: Resumable, *, now: bool = False) -> None:
        self._inner.settle(source, now=now)

    def suspend(self) -> None:
        self._inner.suspend()

    def close(self) -> None:
        self._inner.close()

    def save(self, documents: Mapping[str, Any]) -> None:
        self._inner.save(documents)

    def documents(self) -> Mapping[str, Any]:
        return self._inner.documents()

    def recover(self) -> Recovered:
        return self._inner.recover()

    def restore(self, recovered: Recovered, known: Collection[int]) -> Restored:
        return self._inner.restore(recovered, known)

    def clear(self) -> None:
        self._inner.clear()
