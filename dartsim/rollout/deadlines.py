"""Deadlines for the calls of one attempt, at the price of a few timers an attempt.

``asyncio.timeout`` around every call costs a timer a call, which was 29 % of a simulated turn. Here each
kind of call has a ``Lane``: beginning a call only writes down when it is due, and the lane's one timer
moves itself when it goes off too early.
"""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Self


class Lane:
    """One kind of call and its limit.

    Invariant: while a call is under way, a timer is armed that goes off no later than the call is due.
    """

    __slots__ = ("_due", "_handle", "_loop", "_owner", "label", "limit_seconds")

    def __init__(self, owner: Deadlines, label: str, limit_seconds: float) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._due = inf
        self.label = label
        self.limit_seconds = limit_seconds

    def begin(self) -> None:
        """A call of this kind starts now."""
        self._due = self._loop.time() + self.limit_seconds
        if self._handle is None:
            self._handle = self._loop.call_at(self._due, self._check)

    def end(self) -> None:
        """The call came back."""
        self._due = inf

    def stop(self) -> None:
        """Disarm for good."""
        self._due = inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self) -> None:
        self._handle = None
        if self._due == inf:
            return
        if self._due > self._loop.time():
            self._handle = self._loop.call_at(self._due, self._check)
        else:
            self._owner.expire(self)


class Deadlines:
    """The lanes of one attempt, as a context manager that raises ``TimeoutError`` when one expires.

    Example:
        async with Deadlines() as deadlines:
            step = deadlines.lane("step", 120.0)
            step.begin()
            await env.step(action)
            step.end()
    """

    def __init__(self) -> None:
        self._timeout = asyncio.timeout(None)
        self._lanes: list[Lane] = []
        self.expired: Lane | None = None

    def lane(self, label: str, limit_seconds: float) -> Lane:
        """Add a kind of call."""
        lane = Lane(self, label, limit_seconds)
        self._lanes.append(lane)
        return lane

    def expire(self, lane: Lane) -> None:
        """End the attempt because a call of ``lane`` is overdue; the first one to be is the cause."""
        if self.expired is None:
            self.expired = lane
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for lane in self._lanes:
            lane.stop()
        await self._timeout.__aexit__(kind, error, traceback)
