"""How many attempts may run at once, by how full the engines' caches are: prime-rl's controller.

Raised by a factor while caches have room and the bound is what limits, lowered at once where they get full: additive
rules forget too slowly, because an attempt that was let in stays for minutes.

Source: prime-rl 559b447, ``concurrency.py`` and ``dispatcher.py``. Departures: it looks when attempts end, not once a
second whatever happens; its metering of what is dispatched counts for the growth of the bound; nothing is ever
preempted here (the engine's model reserves what a request may need), so its cuts after preemptions have no cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple


class CachePressure(NamedTuple):
    """What the engines hold at one moment."""

    share: float
    """Of the fullest engine's cache that is reserved."""
    waiting: int = 0
    """Requests inside engines that have no room in the cache yet."""
    running: int = 0
    """Requests that have."""


@dataclass(frozen=True, slots=True)
class EngineCaches:
    """The engines' caches, as the data manager sees them.

    Attributes:
        first: Attempts whose longest requests fill all caches: the bound to begin with.
        read: Returns what the engines hold now.
    """

    first: int
    read: Callable[[], CachePressure]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """The controller's numbers; defaults are prime-rl's.

    Attributes:
        least: Smallest bound.
        most: Largest bound.
        growth: Factor of a raise.
        grow_below: Share of the fullest cache below which the bound may be raised.
        binding: Share of the bound that has to run for it to be raised: below, something else limits.
        soft_above: Share above which the bound is lowered.
        hard_above: Share above which the youngest groups are given up as well.
        target: Share that a lowered bound aims at.
        queue_ratio: Waiting requests over running ones that are too many, if ``looks`` looks in a row see it.
        queue_cut: Factor of the bound then.
        looks: Looks after a cut in which nothing is done.
        look_seconds: Shortest time between two looks.
        gate_seconds: Time after which the bound may be raised again, if so many attempts have not ended sooner as it
            allows to run.
        burst_seconds: Time in which it rises by a tenth, or by a group, at most.
    """

    least: int = 1
    most: int = 1024
    growth: float = 1.25
    grow_below: float = 0.6
    binding: float = 0.9
    soft_above: float = 0.8
    hard_above: float = 0.9
    target: float = 0.7
    queue_ratio: float = 0.5
    queue_cut: float = 0.9
    looks: int = 6
    look_seconds: float = 1.0
    gate_seconds: float = 15.0
    burst_seconds: float = 5.0


class CacheUseRule:
    """The bound on attempts that run, from one look to the next.

    States: *growing* towards a goal, *resting* after a cut, or *steady*.
    Invariant: ``least`` <= ``bound`` <= ``most``.

    Args:
        numbers: The controller's.
        first: Bound to begin with.
        group_size: Attempts of a group.
    """

    def __init__(self, numbers: CacheUse, *, first: int, group_size: int) -> None:
        self._numbers = numbers
        self._group_size = group_size
        self.bound = self._goal = self._clamped(first)
        self._looked = self._rose = self._raised = float("-inf")
        self._ended = 0
        self._queued = 0
        self._rest = 0

    def ended(self) -> None:
        """An attempt has ended."""
        self._ended += 1

    def look(self, now: float, running: int, pressure: CachePressure) -> bool:
        """Move the bound, and return whether the youngest groups are to be given up until it holds.

        Args:
            now: Seconds, from any beginning.
            running: Attempts that run.
            pressure: What the engines hold.
        """
        numbers = self._numbers
        if now - self._looked < numbers.look_seconds:
            return False
        self._looked = now
        crowded = pressure.waiting > numbers.queue_ratio * max(1, pressure.running)
        self._queued = self._queued + 1 if crowded else 0
        if self._rest:
            self._rest -= 1
        elif pressure.share > numbers.soft_above:
            self._cut(min(self.bound, running) * numbers.target / pressure.share)
            return pressure.share > numbers.hard_above
        elif self._queued >= numbers.looks:
            self._cut(min(self.bound, running) * numbers.queue_cut)
        elif pressure.share < numbers.grow_below:
            self._grow(now, running)
        return False

    def _cut(self, bound: float) -> None:
        self.bound = self._goal = self._clamped(bound)
        self._rest, self._queued, self._ended = self._numbers.looks, 0, 0

    def _grow(self, now: float, running: int) -> None:
        numbers = self._numbers
        turned_over = self._ended >= self.bound or now - self._raised >= numbers.gate_seconds
        if self.bound >= self._goal and turned_over and running >= numbers.binding * self.bound:
            self._goal = self._clamped(ceil(numbers.growth * self.bound))
            self._raised, self._ended = now, 0
        if self.bound < self._goal and now - self._rose >= numbers.burst_seconds:
            self.bound = min(self._goal, self.bound + max(self._group_size, self.bound // 10))
            self._rose = now

    def _clamped(self, bound: float) -> int:
        return int(min(max(bound, self._numbers.least), self._numbers.most))
