"""When faults are injected: calls chosen at a rate, and windows that open at a rate; both also at set times.

Each draws from its own streams and depends only on its own calls or the clock, so adding a kind of fault does not shift
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from math import inf

import numpy as np

from dartsim.config.schema import FaultWindow
from dartsim.sim.faults.kinds import ActiveFault
from dartsim.sim.latency import Latency

MIN_WINDOW_SECONDS = 1e-3
"""Minimum length, because a window without one would open again at the same instant."""

Window = tuple[float, float, float]
"""When it opens, when it closes, and its value for a call: seconds, a factor, or a pair of components."""


class CallFault:
    """One kind of fault of single calls: draws the number of calls until the next affected one."""

    __slots__ = ("_heal_at", "_lasts", "_left", "_rate", "_rng", "_windows", "kind")

    def __init__(
        self, active: ActiveFault, *, rng: np.random.Generator, lasts: Callable[[], float], heal_at: float
    ) -> None:
        self.kind = active.kind
        self._rate = active.rate
        self._rng = rng
        self._lasts = lasts
        self._heal_at = heal_at
        self._windows = [window for window in active.windows for _ in range(window.times or 1)]
        self._left = self._next()

    def hit(self, now: float, target: int, num_members: int) -> float | None:
        """Count one call; return how long it is affected, or None if it is not."""
        if now >= self._heal_at:
            return None
        self._left -= 1
        if self._left == 0:
            self._left = self._next()
            return min(self._lasts(), self._heal_at - now)
        return self._hit_in_window(now, target, num_members) if self._windows else None

    def _hit_in_window(self, now: float, target: int, num_members: int) -> float | None:
        for window in self._windows:
            if now < window.at_seconds or not window.includes(target, num_members):
                continue
            if window.times is not None:
                self._windows.remove(window)
                seconds = self._lasts() if window.lasts_seconds is None else window.lasts_seconds
                return min(seconds, self._heal_at - now)
            if now < window.end_seconds:
                return min(self._lasts(), window.end_seconds - now, self._heal_at - now)
        return None

    def _next(self) -> int:
        return int(self._rng.geometric(self._rate)) if self._rate > 0.0 else -1


class WindowFault:
    """The windows of one kind of fault for one member of its scope: open at random times, for a random while.

    Invariant: the state at a time depends only on the seed and the time, not on earlier queries. Query times must not
    decrease.

    Args:
        per_hour: Rate at which a window opens while none is open; 0: only at set times.
        rng: Draws opening times and lengths.
        lasts: Distribution of lengths, seconds.
        value: Draws a window's value for calls.
        windows: Windows at set times.
        by_target: Whether the value of windows at set times is their target.
        start: Earliest opening, seconds.
        heal_at: When faults end, seconds.
    """

    __slots__ = ("_windows", "begin", "counted", "end", "last_end", "value")

    def __init__(
        self,
        *,
        per_hour: float,
        rng: np.random.Generator,
        lasts: Latency,
        value: Callable[[], float],
        windows: Sequence[FaultWindow] = (),
        by_target: bool = False,
        start: float = 0.0,
        heal_at: float = inf,
    ) -> None:
        gaps, lengths = rng.spawn(2)
        draw = lasts.sampler(lengths)
        self._windows = _until_healed(
            merge(
                _random_windows(per_hour, gaps, draw, value, start),
                _scheduled_windows(windows, draw, value, by_target=by_target),
            ),
            heal_at,
        )
        self.last_end = -inf
        self.begin, self.end, self.value = next(self._windows, (inf, inf, 0.0))
        self.counted = -inf
        """Opening time of the last window that affected something."""

    def is_open(self, now: float) -> bool:
        while self.end <= now:
            self.last_end = max(self.last_end, self.end)
            self.begin, self.end, self.value = next(self._windows, (inf, inf, 0.0))
        return self.begin <= now

    def was_open(self, since: float, now: float) -> bool:
        """Return whether a window was open at any time after ``since`` and up to ``now``."""
        return self.is_open(now) or self.last_end > since


def _random_windows(
    per_hour: float,
    rng: np.random.Generator,
    lasts: Callable[[], float],
    value: Callable[[], float],
    start: float,
) -> Iterator[Window]:
    end = start
    while per_hour > 0.0:
        begin = end + float(rng.exponential(3600.0 / per_hour))
        end = begin + max(lasts(), MIN_WINDOW_SECONDS)
        yield begin, end, value()


def _scheduled_windows(
    windows: Sequence[FaultWindow], lasts: Callable[[], float], value: Callable[[], float], *, by_target: bool
) -> Iterator[Window]:
    for window in windows:
        seconds = lasts() if window.lasts_seconds is None else window.lasts_seconds
        target = float(window.target) if by_target and window.target is not None else value()
        yield window.at_seconds, window.at_seconds + seconds, target


def _until_healed(windows: Iterator[Window], heal_at: float) -> Iterator[Window]:
    """Yield the windows that open before ``heal_at``, cut off at that time."""
    for begin, end, value in windows:
        if begin >= heal_at:
            return
        if end > begin:
            yield begin, min(end, heal_at), value
