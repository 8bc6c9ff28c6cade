"""The recorded window: which state each part was in, for the newest stretch that is known completely; and its file.

Populations keep their newest segments only, so each knows its parts completely from some moment on; the
window begins at the latest of these moments, so that within it nothing is missing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import nlargest
from itertools import islice, pairwise
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.records import Population, Segment


class Stay(NamedTuple):
    """One part's stay in one state; seconds since the start of the run."""

    state: int
    start: float
    end: float


class Window(NamedTuple):
    """A stretch of time in which every part's states are known.

    Attributes:
        start: Seconds since the start of the run.
        end: Seconds since the start of the run.
        stays: Of each population by name, of each of its parts by index, what it did; without gaps.
    """

    start: float
    end: float
    stays: dict[str, list[list[Stay]]]

    def clipped(self, start: float) -> Window:
        """Return the part of it from ``start`` on."""
        stays = {
            name: [[stay._replace(start=max(stay.start, start)) for stay in part if stay.end > start] for part in parts]
            for name, parts in self.stays.items()
        }
        return Window(start, self.end, stays)


def known_from(population: Population) -> float:
    """Return the loop time from which on all of a population's segments are still kept."""
    segments = population.segments
    if not segments or len(segments) < (segments.maxlen or 0):
        return -math.inf
    # Segments are kept in the order in which they ended: what was dropped ended before the first one kept.
    _, _, _, end = segments[0]
    return end


def recorded_window(recorder: Recorder) -> Window | None:
    """Return what the populations remember, or None if segments were not kept."""
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


def _stays(population: Population, start: float, end: float, origin: float) -> list[list[Stay]]:
    parts: list[list[Stay]] = [[] for _ in population.tracks]
    for track, state, since, until in population.segments or ():
        if until > start:
            _append(parts[track], state, max(since, start) - origin, until - origin)
    for track_ in population.tracks:
        if track_.since < end:
            _append(parts[track_.index], track_.state, max(track_.since, start) - origin, end - origin)
    return parts


def _append(stays: list[Stay], state: int, start: float, end: float) -> None:
    """Add a stay; two in a row in the same state are one."""
    if stays and stays[-1].state == state:
        stays[-1] = stays[-1]._replace(end=end)
    else:
        stays.append(Stay(state, start, end))


def shown_parts(size: int, limit: int) -> list[int]:
    """Return at most ``limit`` of the indexes below ``size``, evenly spread."""
    if size <= limit:
        return list(range(size))
    return [index * size // limit for index in range(limit)]


def timeline(recorder: Recorder, *, max_segments: int = 50_000, max_parts: int = 400) -> dict[str, Any] | None:
    """Return the newest part of the recorded window as compact arrays, as written to ``timeline.json``.

    Args:
        recorder: The measurements.
        max_segments: Largest number of stays of all parts; older ones are left out.
        max_parts: Largest number of parts shown of one population.
    """
    window = recorded_window(recorder)
    if window is None:
        return None
    shown = {name: shown_parts(len(parts), max_parts) for name, parts in window.stays.items()}
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
    """Return the window, begun so late that it has no more than ``max_segments`` stays, if there are more."""
    ends = [stay.end for parts in window.stays.values() for part in parts for stay in part]
    if len(ends) <= max_segments:
        return window
    return window.clipped(nlargest(max_segments + 1, ends)[-1])


def _compact(stays: Sequence[Stay], origin: float) -> dict[str, list[int]]:
    """Return states and their milliseconds; rounded at the borders, so that errors do not add up."""
    if not stays:
        return {"states": [], "durations_ms": []}
    borders = [round((stay.start - origin) * 1000.0) for stay in stays]
    borders.append(round((stays[-1].end - origin) * 1000.0))
    return {
        "states": [stay.state for stay in stays],
        "durations_ms": [after - before for before, after in pairwise(borders)],
    }


ROW = Struct("<BIBdd")


class SegmentLog(Instrument):
    """Appends what the components of a run did, whenever the recorder's state is stored.

    Args:
        path: The file; it is written anew, with the segments that the recorder has when the run starts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = self._max_rows = 0

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._started = recorder.started
        self._populations = [population.segments for population in recorder.populations()]
        self._last: list[Segment | None] = [None] * len(self._populations)
        """The newest segment of each population that is written."""
        self._max_rows = 2 * sum(segments.maxlen or 0 for segments in self._populations if segments is not None)
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
        self._last = [None] * len(self._populations)
        data, self._rows = self._take()
        part = self._path.with_name(self._path.name + ".part")
        part.write_bytes(data)
        part.replace(self._path)

    def _take(self) -> tuple[bytes, int]:
        """Return the rows that are not written yet, and how many they are."""
        rows: list[bytes] = []
        started = self._started
        for number, segments in enumerate(self._populations):
            new = _since(segments or (), self._last[number])
            rows.extend(
                ROW.pack(number, part, state, start - started, end - started) for part, state, start, end in new
            )
            if new:
                self._last[number] = new[-1]
        return b"".join(rows), len(rows)


def _since(segments: deque[Segment] | tuple[()], last: Segment | None) -> list[Segment]:
    """Return the segments behind one of them; all, if it is not kept any more."""
    number = 0
    for segment in reversed(segments):
        if segment is last:
            break
        number += 1
    return list(islice(segments, len(segments) - number, None))


def read_segments(path: Path, *, until: float) -> list[list[Segment]]:
    """Return what ``SegmentLog`` wrote of each population, up to a time of the run, seconds; none without the file."""
    data = path.read_bytes() if path.is_file() else b""
    found: list[list[Segment]] = [[], [], []]
    for number, part, state, start, end in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]):
        if start < until and number < len(found):
            found[number].append((part, state, start, min(end, until)))
    return found if data else []


def filled(found: Sequence[Sequence[Segment]], states: Sequence[Sequence[int]], until: float) -> list[list[Segment]]:
    """Return segments with the last stay of each part, which nobody had ended yet.

    Args:
        found: Of each population, in order of their ends, seconds of the run.
        states: Of each population by part: its state at ``until``.
        until: When the run stopped.
    """
    whole = []
    for segments, now in zip(found, states, strict=True):
        ends = dict.fromkeys(range(len(now)), 0.0)
        ends.update((part, end) for part, _, _, end in segments)
        open_stays = [(part, now[part], end, until) for part, end in ends.items() if part < len(now) and end < until]
        whole.append([*segments, *open_stays])
    return whole
