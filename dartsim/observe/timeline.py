"""The recorded window: the newest time for which the state of every component is known, and its file.

Each population keeps only its newest segments, so it is fully known from some time on. The window starts at the latest
of these times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import nlargest
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.records import Population, Segment


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

    def clipped(self, start: float) -> Window:
        """Return the window from ``start`` on."""
        stays = {
            name: [
                [stay._replace(start=max(stay.start, start)) for stay in own if stay.end > start] for own in all_stays
            ]
            for name, all_stays in self.stays.items()
        }
        return Window(start, self.end, stays)


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


def evenly_spread(size: int, limit: int) -> list[int]:
    """Return at most ``limit`` evenly spread indexes below ``size``."""
    return [index * size // limit for index in range(limit)] if size > limit else list(range(size))


def timeline(recorder: Recorder, *, max_segments: int = 50_000, max_tracks: int = 400) -> dict[str, Any] | None:
    """Return the recorded window as compact arrays, as written to ``timeline.json``."""
    window = recorded_window(recorder)
    if window is None:
        return None
    shown = {name: evenly_spread(len(stays), max_tracks) for name, stays in window.stays.items()}
    kept = {name: [window.stays[name][index] for index in shown[name]] for name in shown}
    window = _newest(window._replace(stays=kept), max_segments)
    return {
        "start_seconds": round(window.start, 3),
        "end_seconds": round(window.end, 3),
        "populations": [
            {
                "name": population.name,
                "size": len(population),
                "states": [state.key for state in population.states],
                "tracks": [
                    {"index": index, **_compact(stays, window.start)}
                    for index, stays in zip(shown[population.name], window.stays[population.name], strict=True)
                ],
            }
            for population in reversed(recorder.populations())
        ],
    }


def _newest(window: Window, max_segments: int) -> Window:
    """Return the newest part of the window that has at most ``max_segments`` stays."""
    ends = [stay.end for population in window.stays.values() for stays in population for stay in stays]
    if len(ends) <= max_segments:
        return window
    return window.clipped(nlargest(max_segments + 1, ends)[-1])


def _compact(stays: Sequence[Stay], window_start: float) -> dict[str, list[int]]:
    """Return states and durations, milliseconds; borders are rounded rather than durations, so errors do not add up."""
    times = [*(stay.start for stay in stays), *(stay.end for stay in stays[-1:])]
    borders = [round((time - window_start) * 1000.0) for time in times]
    return {
        "states": [stay.state for stay in stays],
        "durations_ms": [after - before for before, after in pairwise(borders)],
    }


ROW = Struct("<BIBdd")


class SegmentLog(Instrument):
    """Writes the segments of a run to a file, so that a resumed run keeps them.

        <population u8> <component u32> <state u8> <start f64> <end f64>      little-endian, seconds of the run's time

    New rows are appended before each transaction of the store (``Instrument.state_saved``): a resumed run repeats
    the time of rows after the last transaction. Only the newest rows are kept, as in memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = self._max_rows = 0

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._started = recorder.started
        self._populations = [population.segments for population in recorder.populations()]
        self._written = [0] * len(self._populations)
        """Number of segments of each population when rows were last written."""
        self._max_rows = 2 * sum(segments.maxlen for segments in self._populations if segments is not None)
        self._rewrite()

    @override
    def state_saved(self) -> None:
        data, rows = self._take()
        if self._rows + rows > self._max_rows:
            self._rewrite()
        elif rows:
            with self._path.open("ab") as file:
                file.write(data)
            self._rows += rows

    def _rewrite(self) -> None:
        self._written = [0] * len(self._populations)
        data, self._rows = self._take()
        part = self._path.with_name(self._path.name + ".part")
        part.write_bytes(data)
        part.replace(self._path)

    def _take(self) -> tuple[bytes, int]:
        """Return the rows not written yet, and their number."""
        rows: list[bytes] = []
        for number, segments in enumerate(self._populations):
            if segments is None:
                continue
            for index, state, start, end in segments.since(self._written[number]):
                rows.append(ROW.pack(number, index, state, start - self._started, end - self._started))
            self._written[number] = segments.total
        return b"".join(rows), len(rows)


def read_segments(path: Path, *, until: float) -> list[list[Segment]]:
    """Return the segments of each population up to a time of the run, seconds, without a truncated row.

    The list is empty if there is no file.
    """
    data = path.read_bytes() if path.is_file() else b""
    by_population: list[list[Segment]] = [[], [], []]
    for number, index, state, start, end in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]):
        if start < until and number < len(by_population):
            by_population[number].append((index, state, start, min(end, until)))
    return by_population if data else []


def with_open_stays(
    segments: Sequence[Sequence[Segment]], states: Sequence[Sequence[int]], until: float
) -> list[list[Segment]]:
    """Return segments with the last, open stay of each component."""
    complete = []
    for ended, now in zip(segments, states, strict=True):
        ends = dict.fromkeys(range(len(now)), 0.0)
        ends.update((index, end) for index, _, _, end in ended)
        open_stays = [
            (index, now[index], end, until) for index, end in ends.items() if index < len(now) and end < until
        ]
        complete.append([*ended, *open_stays])
    return complete
