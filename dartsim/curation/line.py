"""``Line``: the slots that wait for an attempt."""

from __future__ import annotations

import asyncio
from collections import deque

from dartsim.core.types import Attempt
from dartsim.curation.units import Gang, Units
from dartsim.observe import DesktopState, Recorder


class Line:
    """The slots that wait for an attempt, longest first.

        join --its gang is closed--> waits for it --opens--+
          |                                                v
          +------------its gang is open--------------> lines up for room --start--> busy --end--> free

    Args:
        units: What has to end before a slot gets new work.
        recorder: Where it is seen what a slot waits for.
    """

    def __init__(self, units: Units, recorder: Recorder) -> None:
        self._units = units
        self._recorder = recorder
        self._ready: deque[int] = deque()
        """Slots whose gang is open and that wait for room, longest first."""
        self._waiters: dict[int, asyncio.Future[Attempt | None]] = {}
        self._busy: set[int] = set()

    def __len__(self) -> int:
        """Return how many slots lined up for room."""
        return len(self._ready)

    def end(self, slot: int) -> None:
        """A slot has ended its attempt, if it had one."""
        if slot in self._busy:
            self._busy.remove(slot)
            self._units.gang(slot).end()

    def join(self, slot: int) -> asyncio.Future[Attempt | None]:
        """Let a slot wait; return the future of its attempt, or of None when the run ends."""
        waiter: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        self._waiters[slot] = waiter
        gang = self._units.gang(slot)
        gang.waiting.append(slot)
        if gang.open:
            self._line_up(gang)
        else:
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
        return waiter

    def leave(self, slot: int, waiter: asyncio.Future[Attempt | None]) -> Attempt | None:
        """Let a slot go that waits no longer; return its attempt if it was given one in the very instant."""
        gang = self._units.gang(slot)
        granted = waiter.result() if waiter.done() and not waiter.cancelled() else None
        if granted is None:
            self._waiters.pop(slot, None)
            for line in (self._ready, gang.waiting):
                if slot in line:
                    line.remove(slot)
        else:
            self.end(slot)
            if gang.open:
                self._line_up(gang)
        return granted

    def next(self) -> int | None:
        """Take the first slot out of the line; None if it may not start: its gang has closed, or it waits no longer."""
        slot = self._ready.popleft()
        gang = self._units.gang(slot)
        if not gang.open:
            gang.waiting.append(slot)
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
            return None
        waiter = self._waiters.get(slot)
        return None if waiter is None or waiter.done() else slot

    def start(self, slot: int, attempt: Attempt) -> None:
        """Give an attempt to a slot that ``next`` returned."""
        self._units.gang(slot).start()
        self._busy.add(slot)
        self._waiters.pop(slot).set_result(attempt)

    def send_home(self) -> None:
        """Tell all slots that wait that the run ends."""
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def startable(self) -> list[int]:
        """Return the slots in line whose gang is open."""
        return [slot for slot in self._ready if self._units.gang(slot).open]

    def forgotten(self) -> list[int]:
        """Return the slots that wait, in line or not, although their gang is open."""
        return [slot for slot, waiter in self._waiters.items() if not waiter.done() and self._units.gang(slot).open]

    def unit_running(self, slot: int) -> int:
        """Return how many attempts of a slot's sampling unit run."""
        return self._units.gang(slot).running

    def _line_up(self, gang: Gang) -> None:
        """Let the free slots of an open gang line up for room."""
        for slot in gang.waiting:
            self._ready.append(slot)
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_ADMISSION)
        gang.waiting.clear()
