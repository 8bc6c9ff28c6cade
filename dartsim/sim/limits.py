"""Limits of a simulation: virtual time, events, and a watchdog for progress; also the callback that reports time.

All are reduced to one number, the next virtual time at which any of them is due, so the loop needs one comparison each
time the clock moves.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from dartsim.core.errors import LimitReached, Stalled
from dartsim.sim.environment import SimEnvironment


class SimLimits:
    """Limits of one simulation."""

    def __init__(
        self,
        *,
        until: float | None = None,
        max_events: int | None = None,
        stall_seconds: float | None = None,
        on_advance: Callable[[float], None] | None = None,
        every_seconds: float = 60.0,
    ) -> None:
        if stall_seconds is not None and not stall_seconds > 0:
            raise ValueError(f"stall_seconds must be positive, got {stall_seconds}")
        if not every_seconds > 0:
            raise ValueError(f"every_seconds must be positive, got {every_seconds}")
        self.max_events: float = inf if max_events is None else max_events
        self._until = inf if until is None else until
        self._stall_seconds = inf if stall_seconds is None else stall_seconds
        self._on_advance = on_advance
        self._every_seconds = every_seconds
        self._next_advance = every_seconds if on_advance is not None else inf
        self.last_progress = 0.0

    @property
    def alarm(self) -> float:
        """The time beyond which the clock may move only after ``ring``."""
        return min(self._until, self.last_progress + self._stall_seconds, self._next_advance)

    def ring(self, env: SimEnvironment, when: float, waiting: Callable[[], str]) -> float:
        """Handle what is due before the clock of ``env`` moves to ``when``, and return the next alarm.

        Raises:
            LimitReached: If ``when`` lies beyond the virtual-time limit.
            Stalled: If nothing has made progress for too long.
        """
        if when > self._next_advance and self._on_advance is not None:
            self._next_advance = when + self._every_seconds
            self._on_advance(min(when, self._until))
        watchdog = self.last_progress + self._stall_seconds
        if when > self._until <= watchdog:
            env._now = self._until
            raise LimitReached(f"the main task had not ended at the virtual-time limit until={self._until:g} s")
        if when > watchdog:
            env._now = watchdog
            raise Stalled(
                f"no progress since t={self.last_progress:g} s, for more than stall_seconds="
                f"{self._stall_seconds:g} s; call loop.progress() when work gets done. Waiting:\n" + waiting()
            )
        return self.alarm

    def too_many_events(self, now: float, waiting: str) -> LimitReached:
        """Return the error for the event limit."""
        return LimitReached(
            f"max_events={self.max_events} events used up at t={now:g} s; is something polling? Waiting:\n{waiting}"
        )
