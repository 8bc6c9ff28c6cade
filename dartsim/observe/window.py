"""The recorded window: the newest time for which the state of every component is known.

Each population keeps only its newest segments, so it is fully known from some time on. The window starts at the latest
of these times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dartsim.observe.recorder import Recorder
from dartsim.observe.records import Population, Segment
from dartsim.observe.states import POPULATIONS


class Stay(NamedTuple):
    """A component's stay in one state; seconds since the start of the run."""

    state: int
    start: float
    end: float


class Window(NamedTuple):
    """A time span, seconds since the start of the run, in which the state of every component is known.

    ``stays`` has the stays of each component, by population and index, without gaps.
    """

    start: float
    end: float
    stays: dict[str, list[list[Stay]]]

    def clipped(self, start: float, end: float = math.inf) -> Window:
        """Return the window from ``start`` on, until ``end`` at most."""
        end = min(end, self.end)
        stays = {
            name: [
                [
                    stay._replace(start=max(stay.start, start), end=min(stay.end, end))
                    for stay in own
                    if stay.end > start and stay.start < end
                ]
                for own in all_stays
            ]
            for name, all_stays in self.stays.items()
        }
        return Window(start, end, stays)


def known_from(population: Population) -> float:
    """Return the loop time from which all segments of a population are kept."""
    segments = population.segments
    if segments is None or len(segments) < segments.maxlen:
        return -math.inf
    end: float = segments.oldest()[-1]
    return end  # segments are ordered by end, so all dropped ones ended before this one


def recorded_window(recorder: Recorder) -> Window | None:
    """Return the recorded window; None if no segments are kept."""
    populations = recorder.populations()
    if any(population.segments is None for population in populations):
        return None
    start = max(recorder.started, *(known_from(population) for population in populations))
    end = recorder.clock()
    if start >= end:
        return None
    return Window(
        start - recorder.started,
        end - recorder.started,
        {population.name: _stays(population, start, end, recorder.started) for population in populations},
    )


def window_of(segments: Sequence[Sequence[Segment]]) -> Window | None:
    """Return the time in which the stays of every component are known, from the segments of each population.

    A component belongs to it if it has any segment. None if there is no such time.
    """
    by_population = []
    for own in segments:
        stays: list[list[Stay]] = [[] for _ in range(max((index for index, *_ in own), default=-1) + 1)]
        for index, state, start, end in own:
            stays[index].append(Stay(state, start, end))
        by_population.append([ordered for ordered in stays if ordered])
    known = [ordered for stays in by_population for ordered in stays]
    if not all(by_population) or not known:
        return None
    start, end = max(ordered[0].start for ordered in known), min(ordered[-1].end for ordered in known)
    window = Window(0.0, end, dict(zip(POPULATIONS, by_population, strict=True)))
    return window.clipped(start, end) if start < end else None


def _stays(population: Population, start: float, end: float, run_start: float) -> list[list[Stay]]:
    stays: list[list[Stay]] = [[] for _ in population.tracks]
    for index, state, since, until in population.segments or ():
        if until > start:
            _append(stays[index], state, max(since, start) - run_start, until - run_start)
    for track in population.tracks:
        if track.since < end:
            _append(stays[track.index], track.state, max(track.since, start) - run_start, end - run_start)
    return stays


def _append(stays: list[Stay], state: int, start: float, end: float) -> None:
    """Add a stay, merged with the last one if the state is the same."""
    if stays and stays[-1].state == state:
        stays[-1] = stays[-1]._replace(end=end)
    else:
        stays.append(Stay(state, start, end))
