"""Instruments that write updates and snapshots during a run as JSON lines; other formats are ``dartsim.observe.sinks``.

Times are seconds of the run, so that the same run writes the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.records import Snapshot, UpdateRecord

R = TypeVar("R", Snapshot, UpdateRecord)


class Writer(Instrument):
    """Writes files while a run goes on, and is closed at its end."""

    def close(self) -> None:
        raise NotImplementedError


class JsonlWriter(Writer):
    """Writes one line of JSON for each update.

    Args:
        path: The file.
        after: Keep the existing lines up to this update; None: a new file.
    """

    def __init__(self, path: Path, *, after: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [] if after is None else read_updates(path, last=after)
        replace_lines(path, map(asdict, kept))
        self._file = path.open("a", encoding="utf-8")

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        # A learner may report NaN, which must not end the run.
        self._file.write(json.dumps(asdict(record)) + "\n")
        self._file.flush()

    @override
    def close(self) -> None:
        self._file.close()


def read_updates(path: Path, *, last: float = math.inf) -> list[UpdateRecord]:
    """Return the updates, up to ``last``, from a file of ``JsonlWriter``, without truncated lines."""
    records = {record.update: record for record in _read_lines(path, UpdateRecord)}  # the last line counts
    return [record for number, record in sorted(records.items()) if number <= last]


class SnapshotLog(Instrument):
    """Writes snapshots as JSON lines, so that the figures of a resumed run cover its whole time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorder: Recorder | None = None

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder
        replace_lines(self._path, map(asdict, recorder.snapshots))

    @override
    def snapshot_taken(self) -> None:
        assert self._recorder is not None, "a run starts before it takes snapshots"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self._recorder.snapshots[-1])) + "\n")


def read_snapshots(path: Path, *, until: float) -> list[Snapshot]:
    """Return the snapshots up to a time of the run, seconds, without truncated lines."""
    return [snapshot for snapshot in _read_lines(path, Snapshot) if snapshot.time <= until]


def _read_lines(path: Path, kind: type[R]) -> Iterator[R]:
    for line in json_lines(path):
        # The compiled classes take no list for a tuple.
        values: dict[str, Any] = {name: tuple(own) if isinstance(own, list) else own for name, own in line.items()}
        with suppress(TypeError):
            yield kind(**values)


def json_lines(path: Path, newest_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file that are whole; only those at its end if a number of bytes is given."""
    if path.is_file():
        with path.open("rb") as file:
            if newest_bytes is not None and path.stat().st_size > newest_bytes:
                file.seek(-newest_bytes, 2)
                file.readline()
            for line in file:
                with suppress(ValueError, RecursionError):
                    if isinstance(value := json.loads(line), dict):
                        yield value


def replace_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Replace a file's lines."""
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    part.replace(path)
