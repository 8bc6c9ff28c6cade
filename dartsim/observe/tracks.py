"""Tracks: the time that each part spends in each state, added up as it happens.

Memory does not grow with the length of the run: totals are kept per population, and of single
segments only the newest, up to a limit, for the timeline and the Perfetto trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dartsim.observe.states import ComponentState

Clock = Callable[[], float]

Segment = tuple[int, int, float, float]
"""One part's stay in one state: (track, state, start, end), times in seconds of loop time.

A plain tuple, because several are made a turn and a named one costs four times as much to make.
"""


class Track:
    """One part of a population; it is in exactly one state."""

    __slots__ = ("_population", "index", "since", "state")

    def __init__(self, population: Population, index: int, state: int) -> None:
        self._population = population
        self.index = index
        self.state = state
        self.since = population.clock()

    def enter(self, state: int) -> None:
        """Leave the present state for ``state``; the time since the last change is counted."""
        population = self._population
        now = population.clock()
        since = self.since
        if now > since:
            old = self.state
            population.totals[old] += now - since
            segments = population.segments
            if segments is not None:
                segments.append((self.index, old, since, now))
            self.since = now
        self.state = state


class Population:
    """Parts of one kind (desktops, engines, …) and the seconds they spent in each state.

    Args:
        name: Its name in reports.
        states: The states a part can be in.
        size: Number of parts.
        clock: Returns the loop's time, seconds.
        max_segments: How many single segments to keep, the newest; 0 keeps none.
    """

    def __init__(self, name: str, states: type[ComponentState], size: int, clock: Clock, max_segments: int = 0) -> None:
        self.name = name
        self.states = states
        self.clock = clock
        self.totals = [0.0] * len(states)
        self.segments: deque[Segment] | None = deque(maxlen=max_segments) if max_segments else None
        first = states(0)
        off = states.__members__.get("OFF", first)
        self.tracks = [Track(self, index, off) for index in range(size)]

    def __len__(self) -> int:
        return len(self.tracks)

    def swap(self, old: int, new: int) -> None:
        """Move every part that is in ``old`` to ``new``."""
        for track in self.tracks:
            if track.state == old:
                track.enter(new)

    def seconds(self) -> tuple[float, ...]:
        """Part-seconds in each state up to now, the present segments included."""
        now = self.clock()
        totals = self.totals.copy()
        for track in self.tracks:
            totals[track.state] += now - track.since
        return tuple(totals)

    def flush(self) -> None:
        """Close the present segments, so that timelines reach up to now."""
        for track in self.tracks:
            track.enter(track.state)
