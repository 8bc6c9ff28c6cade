"""``SegmentLog``: the timeline of a run as a file, so that it goes on after a crash.

    <population u8> <part u32> <state u8> <start f64> <end f64>      little-endian, seconds of the run's time

It is written with every transaction of the store (``Instrument.state_saved``), before it: so all that ended until the
transaction is there, and what comes behind it belongs to time that is played again. A row that a crash cut off is left
out. Only the newest rows are kept, as in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from struct import Struct

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.tracks import Segment

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
