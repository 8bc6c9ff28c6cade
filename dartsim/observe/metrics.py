"""Instruments that write updates and snapshots while a run goes on: JSON lines and TensorBoard.

Times are simulated (loop) seconds, so the same run writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.records import Snapshot, UpdateRecord

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
    """Writes every finished update at once; a context manager that closes its file."""

    def close(self) -> None:
        """Finish the file; nothing can be written afterwards."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class JsonlWriter(UpdateWriter):
    """One line of JSON for each update, in a new file ``path``.

    Args:
        path: The file.
        after: Go on with the file that is there, behind the line of this update; None: a new one.
    """

    def __init__(self, path: Path, *, after: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [] if after is None else read_updates(path, last=after)
        _replace_lines(path, kept)
        self._file = path.open("a", encoding="utf-8")

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        # A learner may report NaN; a line that says so is worth more than a run that ends here.
        self._file.write(json.dumps(asdict(record)) + "\n")
        self._file.flush()

    @override
    def close(self) -> None:
        self._file.close()


def read_updates(path: Path, *, last: int) -> list[UpdateRecord]:
    """Return what ``JsonlWriter`` wrote of the updates up to ``last``; a line that a crash cut off is left out."""
    records: dict[int, UpdateRecord] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        with suppress(ValueError, TypeError):
            record = UpdateRecord(**json.loads(line))
            records[record.update] = record
    return [record for number, record in sorted(records.items()) if number <= last]


class SnapshotLog(Instrument):
    """Writes snapshots as JSON lines, so that a resumed run has figures over its whole time.

    Args:
        path: The file; it is written anew, with the snapshots that the recorder has when the run starts.
    """

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
    """Write records in place of what is in a file."""
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), encoding="utf-8")
    part.replace(path)


def read_snapshots(path: Path, *, until: float) -> list[Snapshot]:
    """Return the snapshots up to a time of the run, seconds; a line that a crash cut off is left out."""
    found: list[Snapshot] = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        with suppress(ValueError, TypeError):
            snapshot = Snapshot(**json.loads(line))
            if snapshot.time <= until:
                found.append(snapshot)
    return found


class TensorBoardWriter(UpdateWriter):
    """Scalars for TensorBoard in a new folder: step = update, wall time = simulated seconds.

    tensorboardX's ``SummaryWriter`` names files by host and clock and writes from a thread; its record writer
    does neither.

    Args:
        folder: The folder.
        life: How often the run was begun; each time is a file of its own.
        after: The last update that counts of what other files hold.
    """

    def __init__(self, folder: Path, *, life: int = 1, after: int = 0) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._event = Event
        self._writer: Any = RecordWriter(str(folder / f"events.out.tfevents.{life - 1:010d}.dartsim"))
        self._write(Event(wall_time=0.0, file_version="brain.Event:2"))
        if life > 1:  # TensorBoard forgets later steps of earlier files
            self._write(Event(step=after + 1, session_log=SessionLog(status=SessionLog.START)))

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        # A metric without a group of its own gets one.
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
