"""Instruments that write updates and snapshots during a run: JSON lines and TensorBoard.

Times are seconds of the run, so that the same run writes the same bytes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.records import Snapshot, UpdateRecord

R = TypeVar("R", Snapshot, UpdateRecord)

SCALARS = {
    "train/turns": "num_turns",
    "train/trajectories": "num_trajectories",
    "train/turns_per_trajectory": "mean_turns",
    "reward/mean": "mean_reward",
    "staleness/mean": "staleness_mean",
    "staleness/max": "staleness_max",
}
"""TensorBoard's tag of each field of an update."""


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
            yield kind(**json.loads(line))


@contextmanager
def _without_torch() -> Iterator[None]:
    """Hide torch unless it is loaded: tensorboardX would spend two seconds loading it for features unused here."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes its import raise ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules["torch"]


class TensorBoardWriter(UpdateWriter):
    """Scalars for TensorBoard in a new folder: step = update, wall time = simulated seconds.

    tensorboardX's ``SummaryWriter`` names files by host and clock and writes from a thread; the record writer used here
    does neither.

    Args:
        folder: The folder.
        life: Which start of the run this is; each has its own file.
        after: The last update that counts in earlier files.
    """

    def __init__(self, folder: Path, *, life: int = 1, after: int = 0) -> None:
        with _without_torch():
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._event = Event
        # Absolute, because the writer takes a prefix before a colon for a service, such as s3.
        self._writer: Any = RecordWriter(str(folder.absolute() / f"events.out.tfevents.{life - 1:010d}.dartsim"))
        self._write(Event(wall_time=0.0, file_version="brain.Event:2"))
        if life > 1:  # TensorBoard then ignores later steps in earlier files
            self._write(Event(step=after + 1, session_log=SessionLog(status=SessionLog.START)))

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        # TensorBoard groups tags by what precedes the slash.
        values = [(tag, getattr(record, name)) for tag, name in SCALARS.items()]
        values += [(name if "/" in name else f"metrics/{name}", value) for name, value in record.metrics.items()]
        event = self._event(wall_time=record.time, step=record.update)
        for tag, value in values:
            event.summary.value.add(tag=tag, simple_value=float(value))
        self._write(event)

    @override
    def close(self) -> None:
        self._writer.close()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()
