"""Deadlines for the calls of one attempt, with only a few timers per attempt.

A ``TimeLimit`` around every call needs a timer per call, a third of the cost of a simulated turn. Here each kind of
call has a ``Lane``: beginning a call only sets its due time, and the attempt's single timer rearms itself if it fires
too early.
"""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Final, Self

from dartsim.core.time_limit import TimeLimit

NEVER: Final = inf


class Lane:
    """One kind of call and its limit; at most one call is in progress.

    Attributes:
        due: Loop time at which the call in progress expires; ``NEVER`` if there is none.
    """

    __slots__ = ("_owner", "due", "label", "limit_seconds")

    def __init__(self, owner: Deadlines, label: str, limit_seconds: float) -> None:
        self._owner = owner
        self.due = NEVER
        self.label = label
        self.limit_seconds = limit_seconds

    def begin(self) -> None:
        owner = self._owner
        self.due = due = owner.time() + self.limit_seconds
        if due < owner.armed:
            owner.arm(due)

    def end(self) -> None:
        self.due = NEVER


class Deadlines:
    """The lanes of one attempt, as a context manager that raises ``TimeoutError`` when one expires.

    Invariant: while calls are in progress, the timer is armed and fires no later than any of them is due.

    Example:
        with Deadlines() as deadlines:
            step = deadlines.lane("step", 120.0)
            step.begin()
            await env.step(action)
            step.end()
    """

    __slots__ = ("_handle", "_lanes", "_limit", "_loop", "_paused", "armed", "expired", "time")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = TimeLimit()
        self._lanes: list[Lane] = []
        self._handle: asyncio.TimerHandle | None = None
        self._paused = 0.0
        self.time = self._loop.time
        self.armed = inf
        self.expired: Lane | None = None

    def lane(self, label: str, limit_seconds: float) -> Lane:
        lane = Lane(self, label, limit_seconds)
        self._lanes.append(lane)
        return lane

    def arm(self, due: float) -> None:
        """Make the timer fire at ``due``, which is earlier than before."""
        self.disarm()
        self.armed = due
        self._handle = self._loop.call_at(due, self._check)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self.armed = inf

    def pause(self) -> None:
        """Stop all limits while a call waits for its turn."""
        self._paused = self.time()
        self.disarm()

    def resume(self) -> None:
        """Continue every limit with its remaining time."""
        waited = self.time() - self._paused
        for lane in self._lanes:
            lane.due += waited
        self.arm(min(lane.due for lane in self._lanes))

    def in_progress(self, label: str) -> bool:
        """Return whether a call of a lane is in progress."""
        return any(lane.due < NEVER for lane in self._lanes if lane.label == label)

    def check(self) -> None:
        """Raise ``TimeoutError`` if a call has expired but answered anyway."""
        if self.expired is not None:
            raise TimeoutError(f"{self.expired.label} timed out, and answered then")

    def _check(self) -> None:
        """End the attempt if a call is overdue; otherwise wait for the one due first."""
        self._handle = None
        self.armed = inf
        if self.expired is not None:  # cleaning up; the first lane to expire is the cause
            return
        first = min(self._lanes, key=_due)
        if first.due <= self.time():
            self.expired = first
            self._limit.end_now()
        elif first.due < inf:
            self.arm(first.due)

    def __enter__(self) -> Self:
        self._limit.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disarm()
        self._lanes.clear()  # breaks the cycle of references, the only garbage of a run
        self._limit.__exit__(kind, error, traceback)


def _due(lane: Lane) -> float:
    return lane.due
