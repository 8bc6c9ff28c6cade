"""Where finished updates are written while a run goes on: JSON lines and TensorBoard.

Both are callables for ``Recorder.sinks``, write at once, and are closed by their owner. Times are simulated
(loop) seconds, so the same run writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dartsim.observe.recorder import Recorder, Snapshot, UpdateRecord

SCALARS = {
    "train/turns": "num_turns",
    "train/trajectories": "num_trajectories",
    "train/turns_per_trajectory": "mean_turns",
    "reward/mean": "mean_reward",
    "staleness/mean": "staleness_mean",
    "staleness/max": "staleness_max",
}
"""TensorBoard's tag of each field of an update."""


class Sink:
    """Something that is told of every finished update and closed at the end; a context manager."""

    def __call__(self, record: UpdateRecord) -> None:
        """Write one update."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish the file; nothing can be written afterwards."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class JsonlSink(Sink):
    """One line of JSON for each update, in a new file ``path``.

    Args:
        path: The file.
        after: Go on with the file that is there, behind the line of this update; None: a new one.
    """

    def __init__(self, path: Path, *, after: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [] if after is None else read_updates(path, last=after)
        part = path.with_name(path.name + ".part")
        part.write_text("".join(json.dumps(asdict(record)) + "\n" for record in kept), encoding="utf-8")
        part.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def __call__(self, record: UpdateRecord) -> None:
        """Write the update's fields; its metrics stand in the field of that name."""
        # A learner may report NaN; a line that says so is worth more than a run that ends here.
        self._file.write(json.dumps(asdict(record)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_updates(path: Path, *, last: int) -> list[UpdateRecord]:
    """Return what ``JsonlSink`` wrote of the updates up to ``last``; a line that a crash cut off is left out."""
    records: dict[int, UpdateRecord] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        with suppress(ValueError, TypeError):
            record = UpdateRecord(**json.loads(line))
            records[record.update] = record
    return [record for number, record in sorted(records.items()) if number <= last]


class SnapshotLog:
    """Snapshots as JSON lines, so that figures over time go on after a crash; a callable for ``Recorder.on_snapshot``.

    Args:
        path: The file.
        recorder: Whose.
    """

    def __init__(self, path: Path, recorder: Recorder) -> None:
        self._path = path
        self._recorder = recorder
        write_lines(path, recorder.snapshots)

    def __call__(self) -> None:
        """Write the newest snapshot."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self._recorder.snapshots[-1])) + "\n")


def write_lines(path: Path, snapshots: Sequence[Snapshot]) -> None:
    """Write snapshots in place of what is in a file."""
    part = path.with_name(path.name + ".part")
    part.write_text("".join(json.dumps(asdict(snapshot)) + "\n" for snapshot in snapshots), encoding="utf-8")
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


class TensorBoardSink(Sink):
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

    def __call__(self, record: UpdateRecord) -> None:
        """Write each field and metric under its tag; a metric without a ``/`` gets ``metrics/`` before it."""
        values = [(tag, getattr(record, name)) for tag, name in SCALARS.items()]
        values += [(name if "/" in name else f"metrics/{name}", value) for name, value in record.metrics.items()]
        event = self._event(wall_time=record.time, step=record.update)
        for tag, value in values:
            event.summary.value.add(tag=tag, simple_value=float(value))
        self._write(event)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()
