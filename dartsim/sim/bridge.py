"""The same SimPy world on a real event loop, next to real sockets.

The environment arms one timer of the loop, for the head of its heap. Simulated events then happen at their time by the
loop's clock, delayed only by the machine, and in the same order as in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import NORMAL

from dartsim.sim.environment import SimEnvironment
from dartsim.sim.event_heap import Timer


class BridgeEnvironment(SimEnvironment):
    """A simulated world that runs at the pace of a real event loop.

    Attributes:
        speed: Simulated seconds that pass in one second of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be positive, got {speed}")
        super().__init__()
        self.loop = loop
        self.wake_in = lambda seconds, wake, pause, context: self.call_in(seconds, pause.set_result, None)
        self.speed = speed
        self._start = loop.time()
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")
        self._stepping = False

    @property
    def now(self) -> float:
        """The world's time, seconds; during an event, the time at which it was due."""
        self._catch_up()
        return self._now

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: float = 0) -> None:
        """Put an event on the heap, ``delay`` simulated seconds from now."""
        self._catch_up()
        super().schedule(event, priority, delay)
        self._arm()

    def call_at(self, when: float, fn: Callable[..., object], *args: Any) -> Timer:
        """Call ``fn(*args)`` at the simulated time ``when``, or at once if that has just passed."""
        self._catch_up()
        timer = super().call_at(max(when, self._now), fn, *args)
        self._arm()
        return timer

    def call_in(self, delay: float, fn: Callable[..., object], *args: Any) -> Timer:
        self._catch_up()
        timer = super().call_in(delay, fn, *args)
        self._arm()
        return timer

    def close(self) -> None:
        self.clear()
        self._arm()

    def _catch_up(self) -> None:
        """Move the clock to the loop's, but not past events that are still due."""
        if not self._stepping:
            self._now = max(self._now, min(self._elapsed(), self.peek()))

    def _elapsed(self) -> float:
        assert self.loop is not None
        return (self.loop.time() - self._start) * self.speed

    def _arm(self) -> None:
        """Arm the loop's timer for the head of the heap only."""
        head = self.peek()
        if self._stepping or (self._armed_for <= head and self._armed is not None):
            return
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        self._armed_for = head
        if head < float("inf"):
            assert self.loop is not None
            self._armed = self.loop.call_at(self._start + head / self.speed, self._fire)

    def _fire(self) -> None:
        # The loop's timers may fire early by the resolution of its clock, so the armed entry counts as due.
        due = max(self._armed_for, self._elapsed())
        self._armed = None
        self._stepping = True
        try:
            while self.peek() <= due:
                self._step()
        finally:
            self._stepping = False
            self._arm()
