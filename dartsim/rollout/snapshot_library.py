"""``SnapshotLibrary``: which states of desktops a host keeps, within bounds, and who saves a missing one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dartsim.config.sections.desktop import SnapshotsConfig
from dartsim.core.snapshots import Snapshots
from dartsim.core.types import Observation

BOOTED = "booted"
"""Key of the state after the boot, which is not of a task and is never evicted."""
MAX_FAULTS = 2
"""Failed restores in a row after which a state is deleted and its key is not saved again."""


@dataclass(slots=True, eq=False)
class SavedState:
    """One state, from the moment at which a desktop begins to prepare it.

    Attributes:
        key: What it is of: equal for the tasks that share it.
        name: Its name in the backend, which no other state of the run ever has.
        num_bytes: Its size on the host; an estimate until it is saved.
        shown: What the desktop showed when it was saved; None for the state after the boot.
        settled: Set once it is saved, or the desktop that prepared it gave up.
    """

    key: str
    name: str
    num_bytes: int
    shown: Observation | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    users: int = 0
    faults: int = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep it from being deleted."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1


class SnapshotLibrary:
    """The saved states of one host.

    Invariants: it has at most ``max_count`` states of tasks; one desktop at a time prepares the state of a key; a state
    in use is not deleted; after every ``save`` the states on the host take at most ``max_gib``.
    """

    def __init__(self, host: str, config: SnapshotsConfig, counts: Counter[str]) -> None:
        self.host = host
        self._config = config
        self._max_bytes = int(config.max_gib * 2**30)
        self._counts = counts
        self._states: dict[str, SavedState] = {}
        """By key, the least recently used first."""
        self._discarded: list[SavedState] = []
        """States to delete, which the next desktop that saves one does."""
        self._refused: set[str] = set()
        self._num_names = 0

    async def find(self, key: str) -> SavedState | None:
        """Return the state of a key, waiting while another desktop prepares it; None if there is none."""
        while (state := self._states.get(key)) is not None and not state.settled.is_set():
            await state.settled.wait()
        if state is not None:
            self._states[key] = self._states.pop(key)
        return state

    @contextmanager
    def preparing(self, key: str) -> Iterator[SavedState | None]:
        """Reserve a place for a state that the caller prepares, and saves within the block.

        Yields None if nothing is to be saved: there is no room, or the key's states failed too often.
        """
        estimate = max((state.num_bytes for state in self._states.values()), default=0)
        if key in self._refused or not self._make_room(estimate, num_tasks=key != BOOTED):
            yield None
            return
        self._num_names += 1
        state = self._states[key] = SavedState(key, f"{key}-{self._num_names}", estimate)
        try:
            yield state
        finally:
            if not state.settled.is_set():
                self._discard(state)  # what a cancelled save left of it, too
                state.settled.set()

    async def save(self, state: SavedState, snapshots: Snapshots, shown: Observation | None = None) -> None:
        """Save a desktop's present state at its reserved place.

        Raises:
            EnvFault: If the desktop could not.
        """
        await self._delete_discarded(snapshots)
        state.num_bytes, state.shown = await snapshots.save(state.name), shown
        self._counts["revert/saved"] += 1
        self._counts["revert/saved_bytes"] += state.num_bytes
        with state.in_use():
            if not self._make_room(0):
                self._refuse(state)
        state.settled.set()
        await self._delete_discarded(snapshots)

    def restored(self, state: SavedState, *, good: bool) -> None:
        """Take into account whether a desktop returned to a state."""
        state.faults = 0 if good else state.faults + 1
        if state.faults >= MAX_FAULTS:
            self._refuse(state)

    def _make_room(self, num_bytes: int, num_tasks: int = 0) -> bool:
        """Evict states until so much fits; return whether it does."""
        while (
            sum(state.num_bytes for state in self._states.values()) + num_bytes > self._max_bytes
            or sum(key != BOOTED for key in self._states) + num_tasks > self._config.max_count
        ):
            evictable = (s for s in self._states.values() if s.settled.is_set() and not s.users and s.key != BOOTED)
            victim = next(evictable, None)
            if victim is None:
                return False
            self._discard(victim)
            self._counts["revert/evicted"] += 1
        return True

    def _refuse(self, state: SavedState) -> None:
        self._discard(state)
        self._refused.add(state.key)

    def _discard(self, state: SavedState) -> None:
        if self._states.get(state.key) is state:
            del self._states[state.key]
            self._discarded.append(state)

    async def _delete_discarded(self, snapshots: Snapshots) -> None:
        for state in [state for state in self._discarded if not state.users]:
            self._discarded.remove(state)
            await snapshots.delete(state.name)
