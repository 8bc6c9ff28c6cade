"""``RunLoop``: the event loop of a run in real time, which measures its idle time."""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class IdleSelector(selectors.DefaultSelector):
    """The system's selector, which adds up the time it waited.

    Attributes:
        idle_seconds: Time waited until there was something to do. The time that the loop then needs to wake, because
            other threads hold the interpreter or the cores, does not count as idle.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle_seconds = 0.0
        self._woken_at = math.inf

    def wake(self) -> None:
        """Say, from any thread, that there is something to do now."""
        self._woken_at = min(self._woken_at, time.monotonic())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        started = time.monotonic()
        self._woken_at = math.inf
        try:
            return super().select(timeout)
        finally:
            self.idle_seconds += max(0.0, min(self._woken_at, time.monotonic()) - started)


class RunLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0, like that of a simulated one, or at ``start`` seconds."""

    def __init__(self, start: float = 0.0) -> None:
        self._idle = IdleSelector()
        super().__init__(self._idle)
        self._began = super().time() - start

    def time(self) -> float:
        return super().time() - getattr(self, "_began", 0.0)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._idle.wake()
        return super().call_soon_threadsafe(callback, *args, context=context)

    def idle_seconds(self) -> float:
        """Return its total idle time, seconds."""
        return self._idle.idle_seconds
