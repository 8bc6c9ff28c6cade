"""When faults strike: calls that are counted down to, and spells that begin and end at drawn times.

Each draws from streams of its own and looks only at its own calls or at the clock, so that one more kind of fault
shifts no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from math import inf

import numpy as np

from dartsim.sim.faults.table import Active, Scheduled
from dartsim.sim.latency import Latency

SHORTEST_SECONDS = 1e-3
"""Of a spell: one without length would begin again at the same instant."""

Spell = tuple[float, float, float]
"""When it begins and ends, and what it means for a call: seconds, a factor, or which pair of parts."""


class CallFault:
    """Strikes one call of a kind in so many: what is drawn is how many calls there are until the next one.

    Args:
        active: What strikes, and how often.
        rng: Draws the calls until the next strike.
        lasts: Draws how long a struck call takes.
        heal_at: When it strikes no more.
    """

    __slots__ = ("_heal_at", "_lasts", "_left", "_rate", "_rng", "_scheduled", "kind")

    def __init__(self, active: Active, *, rng: np.random.Generator, lasts: Callable[[], float], heal_at: float) -> None:
        self.kind = active.kind
        self._rate = active.rate
        self._rng = rng
        self._lasts = lasts
        self._heal_at = heal_at
        self._scheduled = [strike for strike in active.scheduled for _ in range(strike.times)]
        self._left = self._next()

    def look(self, now: float, target: int, members: int) -> float | None:
        """Count one call; return for how long it is struck, or None if it is not.

        Args:
            now: The time.
            target: Whose call it is, for strikes at a set time and target.
            members: How many there are.
        """
        if now >= self._heal_at:
            return None
        self._left -= 1
        if self._left == 0:
            self._left = self._next()
            return self._lasts()
        if self._scheduled:
            return self._look_up(now, target, members)
        return None

    def _look_up(self, now: float, target: int, members: int) -> float | None:
        for strike in self._scheduled:
            if now >= strike.at and target == strike.target % members:
                self._scheduled.remove(strike)
                return self._lasts() if strike.seconds is None else strike.seconds
        return None

    def _next(self) -> int:
        return int(self._rng.geometric(self._rate)) if self._rate > 0.0 else -1


class Spells:
    """Something that begins at random, lasts a while, and begins again.

    Invariant: what it says of a time depends on the seed and the times alone, not on who asked before. It is to be
    asked in the order of time.

    Args:
        per_hour: How often it begins, while it does not last; 0 for only the scheduled ones.
        rng: Draws when and how long.
        lasts: Draws for how long.
        value: Draws what a spell means for calls.
        scheduled: Those at set times.
        by_target: Whether the value of these is their target.
        start: When the first one may begin.
        heal_at: When nothing begins any more and what lasts ends.
    """

    __slots__ = ("_next", "_spells", "begin", "counted", "end", "last_end", "value")

    def __init__(
        self,
        *,
        per_hour: float,
        rng: np.random.Generator,
        lasts: Latency,
        value: Callable[[], float],
        scheduled: Sequence[Scheduled] = (),
        by_target: bool = False,
        start: float = 0.0,
        heal_at: float = inf,
    ) -> None:
        gaps, lengths = rng.spawn(2)
        draw = lasts.sampler(lengths)
        self._spells = _clipped(
            merge(_drawn(per_hour, gaps, draw, value, start), _planned(scheduled, draw, value, by_target=by_target)),
            heal_at,
        )
        self.last_end = -inf
        self.begin, self.end, self.value = next(self._spells, (inf, inf, 0.0))
        self.counted = -inf
        """When the last spell began that somebody noticed."""

    def at(self, now: float) -> bool:
        """Whether one lasts at ``now``."""
        while self.end <= now:
            self.last_end = max(self.last_end, self.end)
            self.begin, self.end, self.value = next(self._spells, (inf, inf, 0.0))
        return self.begin <= now

    def touched(self, since: float, now: float) -> bool:
        """Whether one lasted at any time after ``since``, up to ``now``."""
        return self.at(now) or self.last_end > since


def _drawn(
    per_hour: float,
    rng: np.random.Generator,
    lasts: Callable[[], float],
    value: Callable[[], float],
    start: float,
) -> Iterator[Spell]:
    end = start
    while per_hour > 0.0:
        begin = end + float(rng.exponential(3600.0 / per_hour))
        end = begin + max(lasts(), SHORTEST_SECONDS)
        yield begin, end, value()


def _planned(
    scheduled: Sequence[Scheduled], lasts: Callable[[], float], value: Callable[[], float], *, by_target: bool
) -> Iterator[Spell]:
    for strike in scheduled:
        seconds = lasts() if strike.seconds is None else strike.seconds
        yield strike.at, strike.at + seconds, float(strike.target) if by_target else value()


def _clipped(spells: Iterator[Spell], heal_at: float) -> Iterator[Spell]:
    """Yield spells that begin before ``heal_at`` and last a while, none of them beyond it."""
    for begin, end, value in spells:
        if begin >= heal_at:
            return
        if end > begin:
            yield begin, min(end, heal_at), value
