"""``AdmissionQueue``: the slots that wait for an attempt, and what has to end before a slot gets one.

Slots form slot groups. A slot group is open until one of its attempts ends, and opens again when none of them runs
any more. Groups of one slot are rollout-wise sampling (DART), groups of ``group_size`` slots are task-wise, one group
of all slots is batch-wise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

from dartsim.core.types import Attempt
from dartsim.observe import DesktopState, Recorder

Unit = Literal["rollout", "task", "batch"]


class SlotGroup:
    """Slots that start together.

    Invariant: no attempt of the slot group starts between the first end of an attempt and the last one.
    """

    __slots__ = ("open", "running", "waiting")

    def __init__(self) -> None:
        self.open = True
        self.running = 0
        self.waiting: deque[int] = deque()
        """Slots that wait for the slot group to open, longest first."""

    def start(self) -> None:
        """A slot of the slot group starts an attempt."""
        self.running += 1

    def end(self) -> None:
        """A slot of the slot group has ended its attempt."""
        self.running -= 1
        self.open = self.running == 0


class SamplingUnit:
    """The slot groups of a cluster.

    Args:
        unit: What is sampled as one.
        num_envs: Slots.
        attempts_per_task: Size of a task-wise slot group.
    """

    def __init__(self, unit: Unit, *, num_envs: int, attempts_per_task: int) -> None:
        size = {"rollout": 1, "task": attempts_per_task, "batch": num_envs}[unit]
        groups = [SlotGroup() for _ in range(0, num_envs, size)]
        self._group_of = [groups[slot // size] for slot in range(num_envs)]

    def slot_group(self, slot: int) -> SlotGroup:
        """Return the slot group of a slot."""
        return self._group_of[slot]


class AdmissionQueue:
    """The slots that wait for an attempt, longest first.

        join --its group is closed--> waits for it --opens--+
          |                                                v
          +------------its group is open--------------> lines up for room --start--> busy --end--> free

    Args:
        unit: What has to end before a slot gets new work.
        recorder: Where it is seen what a slot waits for.
    """

    def __init__(self, unit: SamplingUnit, recorder: Recorder) -> None:
        self._unit = unit
        self._recorder = recorder
        self._ready: deque[int] = deque()
        """Slots whose slot group is open and that wait for room, longest first."""
        self._waiters: dict[int, asyncio.Future[Attempt | None]] = {}
        self._busy: set[int] = set()

    def __len__(self) -> int:
        """Return how many slots lined up for room."""
        return len(self._ready)

    def end(self, slot: int) -> None:
        """A slot has ended its attempt, if it had one."""
        if slot in self._busy:
            self._busy.remove(slot)
            self._unit.slot_group(slot).end()

    def join(self, slot: int) -> asyncio.Future[Attempt | None]:
        """Let a slot wait; return the future of its attempt, or of None when the run ends."""
        waiter: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        self._waiters[slot] = waiter
        group = self._unit.slot_group(slot)
        group.waiting.append(slot)
        if group.open:
            self._line_up(group)
        else:
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
        return waiter

    def leave(self, slot: int, waiter: asyncio.Future[Attempt | None]) -> Attempt | None:
        """Let a slot go that waits no longer; return its attempt if it was assigned one concurrently."""
        group = self._unit.slot_group(slot)
        granted = waiter.result() if waiter.done() and not waiter.cancelled() else None
        if granted is None:
            self._waiters.pop(slot, None)
            for line in (self._ready, group.waiting):
                if slot in line:
                    line.remove(slot)
        else:
            self.end(slot)
            if group.open:
                self._line_up(group)
        return granted

    def next(self) -> int | None:
        """Take the first slot out of the line; None if its group has closed or it no longer waits."""
        slot = self._ready.popleft()
        group = self._unit.slot_group(slot)
        if not group.open:
            group.waiting.append(slot)
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
            return None
        waiter = self._waiters.get(slot)
        return None if waiter is None or waiter.done() else slot

    def start(self, slot: int, attempt: Attempt) -> None:
        """Give an attempt to a slot that ``next`` returned."""
        self._unit.slot_group(slot).start()
        self._busy.add(slot)
        self._waiters.pop(slot).set_result(attempt)

    def send_home(self) -> None:
        """Tell all slots that wait that the run ends."""
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def startable(self) -> list[int]:
        """Return the slots in line whose slot group is open."""
        return [slot for slot in self._ready if self._unit.slot_group(slot).open]

    def forgotten(self) -> list[int]:
        """Return the slots that wait, in line or not, although their slot group is open."""
        waiting = [slot for slot, waiter in self._waiters.items() if not waiter.done()]
        return [slot for slot in waiting if self._unit.slot_group(slot).open]

    def unit_running(self, slot: int) -> int:
        """Return how many attempts of a slot's sampling unit run."""
        return self._unit.slot_group(slot).running

    def _line_up(self, group: SlotGroup) -> None:
        """Let the free slots of an open slot group line up for room."""
        for slot in group.waiting:
            self._ready.append(slot)
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_ADMISSION)
        group.waiting.clear()
