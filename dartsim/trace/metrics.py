"""Where finished updates are written while a run goes on: JSON lines and TensorBoard.

Both are callables for ``Trace.sinks``, write at once, and are closed by their owner. Times are simulated
(loop) seconds, so the same run writes the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dartsim.trace.trace import UpdateRecord

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
    """One line of JSON for each update, in a new file ``path``."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    def __call__(self, record: UpdateRecord) -> None:
        """Write the update's fields; its metrics stand in the field of that name."""
        # A learner may report NaN; a line that says so is worth more than a run that ends here.
        self._file.write(json.dumps(asdict(record)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardSink(Sink):
    """Scalars for TensorBoard in a new folder: step = update, wall time = simulated seconds.

    tensorboardX's ``SummaryWriter`` names files by host and clock and writes from a thread; its record writer
    does neither.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._event = Event
        self._writer: Any = RecordWriter(str(folder / "events.out.tfevents.0000000000.dartsim"))
        self._write(Event(wall_time=0.0, file_version="brain.Event:2"))

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
