"""Instruments that write updates and snapshots during a run as JSON lines; other formats are ``dartsim.observe.sinks``.

Times are seconds of the run, so that the same run writes the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.records import Snapshot, UpdateRecord

R = TypeVar("R", Snapshot, UpdateRecord)


class UpdateWriter(Instrument):
    """Writes every finished update immediately; a context manager that closes its file."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class JsonlWriter(UpdateWriter):
    """Writes one line of JSON for each update.

    Args:
        path: The file.
        after: Keep the existing lines up to this update; None: a new file.
    """

    def __init__(self, path: Path, *, after: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [] if after is None else read_updates(path, last=after)
        _replace_lines(path, kept)
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
        _replace_lines(self._path, recorder.snapshots)

    @override
    def snapshot_taken(self) -> None:
        assert self._recorder is not None, "a run starts before it takes snapshots"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self._recorder.snapshots[-1])) + "\n")


def _replace_lines(path: Path, records: Sequence[Snapshot | UpdateRecord]) -> None:
    """Replace a file's lines."""
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), encoding="utf-8")
    part.replace(path)


def read_snapshots(path: Path, *, until: float) -> list[Snapshot]:
    """Return the snapshots up to a time of the run, seconds, without truncated lines."""
    return [snapshot for snapshot in _read_lines(path, Snapshot) if snapshot.time <= until]


def _read_lines(path: Path, kind: type[R]) -> Iterator[R]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        with suppress(ValueError, TypeError, RecursionError):
            values: dict[str, Any] = json.loads(line, object_hook=_with_tuples)
            yield kind(**values)


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Return an object with tuples for lists, because the compiled classes take no list for a tuple."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
