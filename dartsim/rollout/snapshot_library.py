"""``SnapshotLibrary``: the saved states of desktops on a host, within bounds, and which desktop saves a missing one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dartsim.core.errors import EnvFault
from dartsim.core.snapshots import Snapshots
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Observation

BOOTED = "booted"
"""Key of the state after the boot, which belongs to no task and is never evicted."""


@dataclass(slots=True, eq=False)
class SavedState:
    """One state, from the time at which a desktop begins to prepare it.

    Attributes:
        key: Equal for tasks that share the state.
        name: Its name in the backend, unique within the run.
        num_bytes: Its size on the host; an estimate until it is saved.
        shown: Observation when it was saved; None for the state after the boot.
        settled: Set once it is saved, or the desktop that prepares it gives up.
    """

    key: str
    name: str
    num_bytes: int
    shown: Observation | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    users: int = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Prevent its deletion."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1


class SnapshotLibrary:
    """The saved states of one host.

    Invariants: one desktop at a time prepares the state of a key; a state in use is not deleted; after every ``save``
    the states on the host take at most ``max_gib``.
    """

    def __init__(self, host: str, max_gib: float, counts: Counter[str], *, patience: float | None = None) -> None:
        self.host = host
        self._patience = patience
        """Longest wait for a state that another desktop prepares, seconds; None: no limit."""
        self._max_bytes = int(max_gib * 2**30)
        self._counts = counts
        self._states: dict[str, SavedState] = {}
        """States by key, the least recently used first."""
        self._discarded: list[SavedState] = []
        """States to delete; the next desktop that saves a state deletes them."""
        self._num_names = 0

    async def find(self, key: str) -> SavedState | None:
        """Return a key's state, waiting while another desktop prepares it; None if missing or not ready in time."""
        state = self._states.get(key)
        if state is not None and not state.settled.is_set():
            try:
                with TimeLimit(self._patience):
                    while state is not None and not state.settled.is_set():
                        await state.settled.wait()
                        state = self._states.get(key)
            except TimeoutError:  # that desktop hangs and loses its attempt, but not ours
                return None
        if state is not None:
            self._states[key] = self._states.pop(key)
        return state

    @contextmanager
    def preparing(self, key: str) -> Iterator[SavedState | None]:
        """Reserve a place for a state that the caller prepares and saves within the block.

        Yields None if the state cannot be saved: there is no room, or another desktop is preparing it.
        """
        estimate = max((state.num_bytes for state in self._states.values()), default=0)
        if key in self._states or not self._make_room(estimate):
            yield None
            return
        self._num_names += 1
        state = self._states[key] = SavedState(key, f"{key}-{self._num_names}", estimate)
        try:
            yield state
        finally:
            if not state.settled.is_set():
                self.discard(state)  # also deletes what a cancelled save left behind
                state.settled.set()

    async def save(self, state: SavedState, snapshots: Snapshots, shown: Observation | None = None) -> None:
        """Save a desktop's present state at its reserved place.

        Raises:
            EnvFault: If the desktop failed to.
        """
        await self._delete_discarded(snapshots)
        try:
            state.num_bytes, state.shown = await snapshots.save(state.name), shown
        except EnvFault:
            self._evict()  # the host may have less room than ``max_gib``
            raise
        self._counts["revert/saved"] += 1
        self._counts["revert/saved_bytes"] += state.num_bytes
        with state.in_use():
            if not self._make_room(0):
                self.discard(state)
        state.settled.set()
        await self._delete_discarded(snapshots)

    def _make_room(self, num_bytes: int) -> bool:
        """Evict states until this much fits; return whether it does."""
        while sum(state.num_bytes for state in self._states.values()) + num_bytes > self._max_bytes:
            if not self._evict():
                return False
        return True

    def _evict(self) -> bool:
        """Evict the least recently used state of a task; return whether there was one."""
        evictable = (s for s in self._states.values() if s.settled.is_set() and not s.users and s.key != BOOTED)
        victim = next(evictable, None)
        if victim is None:
            return False
        self.discard(victim)
        self._counts["revert/evicted"] += 1
        return True

    def discard(self, state: SavedState) -> None:
        """Forget a state, so that the next desktop that needs it saves it anew."""
        if self._states.get(state.key) is state:
            del self._states[state.key]
            self._discarded.append(state)

    async def _delete_discarded(self, snapshots: Snapshots) -> None:
        for state in [state for state in self._discarded if not state.users]:
            if state not in self._discarded:
                continue  # another desktop deleted it meanwhile
            self._discarded.remove(state)
            try:
                await snapshots.delete(state.name)
            except BaseException:
                self._discarded.append(state)  # for the next desktop that saves one
                raise
