"""Admission: which slots wait for an attempt, and whether another attempt may start.

Slots form slot groups. A slot group closes when one of its attempts ends, and opens again when none is left running.
Groups of one slot give rollout-wise sampling (DART), groups of ``group_size`` slots task-wise, and one group of all
slots batch-wise sampling.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from dartsim.core.errors import PlugInFailed
from dartsim.core.types import Attempt
from dartsim.curation.group_ledger import GroupLedger
from dartsim.curation.rules import Rules
from dartsim.observe import DesktopState, Recorder


class SlotGroup:
    """Slots that start together.

    Invariant: between the first and the last end of its attempts, none starts.
    """

    __slots__ = ("open", "running", "waiting")

    def __init__(self) -> None:
        self.open = True
        self.running = 0
        self.waiting: list[int] = []  # an empty deque takes 760 bytes, of every slot
        """Slots that wait for the slot group to open, in order of arrival."""

    def start(self) -> None:
        self.running += 1

    def end(self) -> None:
        self.running -= 1
        self.open = self.running == 0


def slot_groups(unit: Literal["rollout", "task", "batch"], *, num_envs: int, attempts_per_task: int) -> list[SlotGroup]:
    """Return the slot group of each slot, for a sampling unit."""
    size = {"rollout": 1, "task": attempts_per_task, "batch": num_envs}[unit]
    groups = [SlotGroup() for _ in range(0, num_envs, size)]
    return [groups[slot // size] for slot in range(num_envs)]


class Admission:
    """The slots that wait for an attempt, in order of arrival, and whether another attempt may start.

    join --its group is closed--> waits for the group --opens--+
      |                                                        v
      +---------------its group is open-----------> waits for admission --start--> busy --end--> free

    Attributes:
        holding: Whether no group may begin, because new weights wait for running attempts.
    """

    def __init__(self, groups: Sequence[SlotGroup], rules: Rules, ledger: GroupLedger, recorder: Recorder) -> None:
        self._groups = groups
        self._rule = rules.admission
        self._ledger = ledger
        self._recorder = recorder
        self._ready: deque[int] = deque()
        """Slots of open slot groups that wait for admission, in order of arrival."""
        self._waiters: dict[int, asyncio.Future[Attempt | None]] = {}
        self._busy: set[int] = set()
        self.holding = False

    def end(self, slot: int) -> None:
        """Count the end of a slot's attempt, if it had one."""
        if slot in self._busy:
            self._busy.remove(slot)
            self._groups[slot].end()

    def join(self, slot: int) -> asyncio.Future[Attempt | None]:
        """Add a waiting slot; return a future for its attempt, or for None when the run ends."""
        waiter: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        self._waiters[slot] = waiter
        group = self._groups[slot]
        group.waiting.append(slot)
        if group.open:
            self._line_up(group)
        else:
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
        return waiter

    def leave(self, slot: int, waiter: asyncio.Future[Attempt | None]) -> Attempt | None:
        """Remove a slot that was cancelled; return its attempt if one was assigned concurrently."""
        group = self._groups[slot]
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
        """Remove and return the first slot that may start an attempt now; None if there is none."""
        while self._ready and self.allows():
            slot = self._ready.popleft()
            group = self._groups[slot]
            waiter = self._waiters.get(slot)
            if not group.open:
                group.waiting.append(slot)
                self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
            elif waiter is not None and not waiter.done():
                return slot
        return None

    def start(self, slot: int, attempt: Attempt) -> None:
        """Give an attempt to a slot that ``next`` returned."""
        self._groups[slot].start()
        self._busy.add(slot)
        self._waiters.pop(slot).set_result(attempt)

    def close(self) -> None:
        """Tell all waiting slots that the run ends."""
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def overlooked(self) -> list[int]:
        """Return every slot that waits for an attempt although its slot group is open and an attempt may start."""
        if not self.allows():
            return []
        waiting = [slot for slot, waiter in self._waiters.items() if not waiter.done()]
        return [slot for slot in waiting if self._groups[slot].open]

    def _line_up(self, group: SlotGroup) -> None:
        """Let the waiting slots of an open slot group wait for admission instead."""
        for slot in group.waiting:
            self._ready.append(slot)
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_ADMISSION)
        group.waiting.clear()

    def allows(self) -> bool:
        """Return whether another attempt may start: one that an open group lacks, or the first of a new group."""
        if self._at_max_running():
            return False
        if self._rule.unbounded and not self.holding:
            return True
        return self._ledger.lacking or (not self.holding and self._bound() is None)

    def blocked_by(self) -> str | None:
        """Return why no group may begin, as a sentence; None if one may."""
        if self.holding:
            return "new weights wait for running attempts"
        if self._at_max_running():
            return (
                f"{len(self._ledger.running)} attempts run, and the engines' caches allow at most "
                f"{self._rule.max_running}"
            )
        return self._bound()

    def _bound(self) -> str | None:
        """Return the rule's answer.

        Raises:
            PlugInFailed: If it is neither a sentence nor None: a rule that returns True would never admit anything.
        """
        rule, counts = self._rule, self._ledger.counts()
        blocked: object = rule.blocked_by(counts)
        if blocked is None or isinstance(blocked, str):
            return blocked
        name = f"{type(rule).__module__}.{type(rule).__qualname__}"
        raise PlugInFailed(f"{name}.blocked_by({counts}) returned {blocked!r}, wanted a sentence or None")

    def adjust(self) -> bool:
        """Let the rule adjust its bound on attempts; return whether to withdraw the youngest groups."""
        rule = self._rule
        withdraws: Any = rule.adjust(asyncio.get_running_loop().time(), len(self._ledger.running))
        limit: Any = rule.max_running
        if not isinstance(withdraws, bool) or not (limit is None or (isinstance(limit, int) and limit >= 1)):
            raise PlugInFailed(
                f"{type(rule).__name__}.adjust returned {withdraws!a:.200} and left max_running at {limit!a:.200}, "
                "wanted a bool, and at least 1 or None"
            )
        return withdraws

    def too_many(self) -> bool:
        """Return whether too many attempts run, not counting those being withdrawn."""
        limit = self._rule.max_running
        return limit is not None and len(self._ledger.running) - len(self._ledger.withdrawn) > limit

    def _at_max_running(self) -> bool:
        limit = self._rule.max_running
        return limit is not None and len(self._ledger.running) >= limit
