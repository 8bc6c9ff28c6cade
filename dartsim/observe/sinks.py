"""Sinks: where a run's updates go beside ``metrics.jsonl`` (``run.sinks``), all with the same names and steps.

The step is the update's number. W&B and trackio read their own environment (``WANDB_MODE=offline``, ``WANDB_PROJECT``,
``TRACKIO_DIR``, …); a run that goes on after a crash is another run of the same group there, because neither takes back
the steps that a crash undid.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from typing_extensions import override

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.observe.metrics import Writer
from dartsim.observe.records import UpdateRecord

FIELDS = {
    "train/turns": "num_turns",
    "train/trajectories": "num_trajectories",
    "train/turns_per_trajectory": "mean_turns",
    "reward/mean": "mean_reward",
    "staleness/mean": "staleness_mean",
    "staleness/max": "staleness_max",
}
"""The name in sinks of each field of an update."""
PROJECT = "dartsim"


@dataclass(frozen=True, slots=True)
class SinkRun:
    """What a sink is told about a run.

    Attributes:
        folder: The run's folder.
        name: The run's name.
        config: The resolved configuration, JSON-serializable.
        life: Which start of the run this is, from 1.
        after: The last update that counts of earlier lives.
    """

    folder: Path
    name: str
    config: Mapping[str, Any]
    life: int = 1
    after: int = 0

    @property
    def label(self) -> str:
        """A name that tells the lives of a run apart."""
        seed = f"{self.name}-seed{self.config['run']['seed']}"
        return seed if self.life == 1 else f"{seed}-life{self.life}"


def scalars(record: UpdateRecord) -> dict[str, float]:
    """Return an update's numbers by their names in sinks, which group names by what precedes the slash."""
    values = {name: float(getattr(record, field)) for name, field in FIELDS.items()}
    metrics = record.metrics.items()
    return values | {name if "/" in name else f"metrics/{name}": float(value) for name, value in metrics}


class TensorBoardSink(Writer):
    """Scalars for TensorBoard in the run's folder; wall time = seconds of the run.

    The same run writes the same bytes. tensorboardX's ``SummaryWriter`` names files by host and clock and writes from a
    thread; the record writer used here does neither. Each life of a run has its own file.
    """

    def __init__(self, run: SinkRun) -> None:
        with _without_torch():
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.record_writer import RecordWriter

        folder = run.folder / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        self._event = Event
        # Absolute, because the writer takes a prefix before a colon for a service, such as s3.
        self._writer: Any = RecordWriter(str(folder.absolute() / f"events.out.tfevents.{run.life - 1:010d}.dartsim"))
        self._write(Event(wall_time=0.0, file_version="brain.Event:2"))
        if run.life > 1:  # TensorBoard then ignores later steps in earlier files
            self._write(Event(step=run.after + 1, session_log=SessionLog(status=SessionLog.START)))

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        event = self._event(wall_time=record.time, step=record.update)
        for tag, value in scalars(record).items():
            event.summary.value.add(tag=tag, simple_value=value)
        self._write(event)

    @override
    def close(self) -> None:
        self._writer.close()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()


class TrackerSink(Writer):
    """A run of an experiment tracker whose runs have ``log(values, step=)`` and ``finish()``."""

    def __init__(self, tracked: Any) -> None:
        self._tracked = tracked

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        self._tracked.log({"run/hours": record.time / 3600.0, **scalars(record)}, step=record.update)

    @override
    def close(self) -> None:
        self._tracked.finish()


def wandb_sink(run: SinkRun) -> TrackerSink:
    """Return a run of Weights & Biases."""
    wandb = _imported("wandb")
    return TrackerSink(
        wandb.init(
            **_described(run, "WANDB_PROJECT"),
            dir=run.folder,
            reinit="create_new",  # runs of a comparison may share a process
            settings=wandb.Settings(console="off", quiet=True),
        )
    )


def trackio_sink(run: SinkRun) -> TrackerSink:
    """Return a run of trackio, in the folder of all its projects."""
    trackio = _imported("trackio")
    return TrackerSink(
        trackio.init(**_described(run, "TRACKIO_PROJECT"), embed=False, auto_log_gpu=False, auto_log_cpu=False)
    )


def _described(run: SinkRun, variable: str) -> dict[str, Any]:
    """Return what both trackers call the same; the project is that of an environment variable."""
    project = os.environ.get(variable, PROJECT)
    return {"project": project, "group": run.name, "name": run.label, "config": dict(run.config)}


SINKS: Mapping[str, Callable[[SinkRun], Writer]] = {
    "tensorboard": TensorBoardSink,
    "wandb": wandb_sink,
    "trackio": trackio_sink,
}
"""Sinks by their names in ``run.sinks``."""


def check_sinks(names: Iterable[str]) -> None:
    """Refuse sinks whose package is not installed.

    Raises:
        ConfigError: Names the package and the command that installs it.
    """
    for name in names:
        if name != "tensorboard":
            _imported(name)


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise ConfigError(
            f"run.sinks names {name!r}, which is not installed: {install_command(name)}; or leave it out"
        ) from None


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
