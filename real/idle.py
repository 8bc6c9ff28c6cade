"""How long an event loop had nothing to do: a selector that counts the seconds it waited."""

from __future__ import annotations

import math
import selectors
import time


class IdleSelector(selectors.DefaultSelector):
    """The system's selector; what is not waiting in it is the loop's own work.

    Attributes:
        idle_seconds: Time waited so far, until there was something to do. That the loop needs a while to wake, because
            other threads hold the interpreter or the cores, is no idleness.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle_seconds = 0.0
        self._woken = math.inf  # when it was said that there is something to do

    def wake(self) -> None:
        """Say, from any thread, that there is something to do now."""
        self._woken = min(self._woken, time.monotonic())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the system's selector does."""
        begun = time.monotonic()
        self._woken = math.inf
        try:
            return super().select(timeout)
        finally:
            self.idle_seconds += max(0.0, min(self._woken, time.monotonic()) - begun)
