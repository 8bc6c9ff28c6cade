"""Executes a configuration from start to end, and writes all results into one run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from dartsim.config import Config, to_toml
from dartsim.core.errors import ConfigError
from dartsim.core.ports import Store
from dartsim.core.types import Weights
from dartsim.observe import Instrument
from dartsim.observe.metrics import JsonlWriter, SnapshotLog, TensorBoardWriter, UpdateWriter
from dartsim.observe.recorder import report_preparing
from dartsim.observe.records import Snapshot
from dartsim.observe.rundir import CONFIG, SUMMARY, RunDir, is_locked, lock_run, refuse_locked, write_run, write_text
from dartsim.observe.timeline import SegmentLog
from dartsim.real.ray_cluster.backend import session
from dartsim.run.prepare import PreparedRun, prepare_run
from dartsim.run.realtime import run_realtime
from dartsim.run.results import RunResult, Samples, learning_curve
from dartsim.run.resume_point import FIRST, METRICS, SEGMENTS, SETTINGS, SNAPSHOTS, ResumePoint
from dartsim.run.simulation import run_simulation
from dartsim.run.watch import Watch
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import CHECKPOINTS_FOLDER, DATABASE_FILE, SCREENS_FOLDER, SqlStore

if TYPE_CHECKING:
    from dartsim.run.learning import Learning

TENSORBOARD = "tensorboard"
SUCCESSES = "successes"
"""Folder of a run's newest successes, if its model learned."""

OWN = (DATABASE_FILE, METRICS, SNAPSHOTS, SEGMENTS, SUCCESSES, CHECKPOINTS_FOLDER, SCREENS_FOLDER)
"""Files and folders that must not exist where a run begins."""

MoreFigures = Callable[[PreparedRun, Mapping[str, Any], Sequence[Snapshot]], Mapping[str, Any]]
"""Returns additional figures of a run from its configuration, figures and snapshots."""


def execute(
    config: Config,
    path: Path,
    instruments: Sequence[Instrument] = (),
    more_figures: MoreFigures | None = None,
) -> tuple[RunDir, RunResult]:
    """Run a configuration, and write its run directory.

    Raises:
        ConfigError: If the configuration names something that does not exist, or the directory holds a run already.
        EnvStartFailed: If no container engine answers.
    """
    with session(config):
        prepared = prepare_run(config)
        refuse_used(path)
        config.backend.desktop_backend.check_hosts(config)
        trained = configured_learning(prepared, path, instruments)  # may fail, so before the directory exists
        with lock_run(path):
            refuse_used(path, ours=True)  # again: another process may have used it in the meantime
            return begin(prepared, path, trained, instruments, more_figures)


def begin(
    prepared: PreparedRun,
    path: Path,
    trained: Learning | None,
    instruments: Sequence[Instrument] = (),
    more_figures: MoreFigures | None = None,
) -> tuple[RunDir, RunResult]:
    """Start a run in an empty run directory that this process has locked; otherwise as ``execute``."""
    write_text(path / CONFIG, to_toml(prepared.config))
    store = open_store(prepared.config, path)
    with closing(store):
        first = trained.evaluate(Weights(0, trained.weights.source)) if trained else None
        # Before anything else is written, so that all files belong to a database that has begun.
        store.save({FIRST: first, SETTINGS: prepared.config.model_dump(mode="json")})
        parts = Parts(prepared, path, store, trained, first=first)
        return run_parts(parts, instruments, more_figures)


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that a run starts with."""

    prepared: PreparedRun
    path: Path
    store: Store
    trained: Learning | None
    first: float | None = None
    resume_point: ResumePoint | None = None


def run_parts(
    parts: Parts,
    instruments: Sequence[Instrument] = (),
    more_figures: MoreFigures | None = None,
) -> tuple[RunDir, RunResult]:
    """Run, and write the run directory; arguments as ``execute``."""
    prepared, path, trained, resume_point = parts.prepared, parts.path, parts.trained, parts.resume_point
    config = prepared.config
    samples = Samples() if trained else None
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(config, path))
        listening: list[Instrument] = [*_writers(stack, path, resume_point), SnapshotLog(path / SNAPSHOTS)]
        if config.run.max_segments and parts.store.resumable:
            listening.append(SegmentLog(path / SEGMENTS))
        listening.append(watch)
        if samples is not None:
            listening.append(samples)
        listening += instruments
        options: dict[str, Any] = {"store": parts.store, "learning": trained, "resume_point": resume_point}
        if config.backend.virtual:
            result = run_simulation(prepared, **options, instruments=listening)
        else:
            result = run_realtime(prepared, **options, instruments=listening, folder=path)
        watch.interrupted, watch.ended_by_alarm = result.interrupted, result.alarm
    return write_results(parts, result, samples, more_figures), result


def write_results(
    parts: Parts, result: RunResult, samples: Samples | None, more_figures: MoreFigures | None = None
) -> RunDir:
    """Write the directory of a run that has ended, and its page."""
    prepared, path, trained, resume_point = parts.prepared, parts.path, parts.trained, parts.resume_point
    config = prepared.config
    more: dict[str, Any] = {}
    if trained is not None and samples is not None:
        last = trained.evaluate(trained.weights)
        trained.save(path)
        trained.save_successes(path / SUCCESSES)
        more = {
            **success_rates(parts.first, last),
            "learning": learning_curve(result.recorder.snapshots, list(result.recorder.updates), parts.first, last),
            "samples": samples.write(path, prepared.config),
            **trained.figures(),
        }
    if resume_point is not None:
        more["lives"] = [*resume_point.lives, resume_point.as_json()]
    run = write_run(
        path,
        result.recorder,
        config_toml=to_toml(config),
        summary={**run_summary(prepared, result, more_figures), **more},
        meta=meta(config, result),
    )
    # Imported here: only the page needs jinja2 and plotly.
    from dartsim.observe.report import render_report

    render_report(run)
    return run


def run_summary(prepared: PreparedRun, result: RunResult, more_figures: MoreFigures | None = None) -> dict[str, Any]:
    """Return all figures of a finished run, as in its ``summary.json``."""
    more = more_figures(prepared, result.figures, result.recorder.snapshots) if more_figures else {}
    config = prepared.config
    return {
        **meta(config, result),
        **result.figures,
        "bias": result.bias,
        **more,
        "config": config.model_dump(mode="json"),
    }


def _writers(stack: ExitStack, path: Path, resume_point: ResumePoint | None) -> list[UpdateWriter]:
    """Return the writers of updates, which append to those of earlier lives."""
    life = 1 if resume_point is None else resume_point.life
    after = None if resume_point is None else resume_point.recovered.update
    return [
        stack.enter_context(JsonlWriter(path / METRICS, after=after)),
        stack.enter_context(TensorBoardWriter(path / TENSORBOARD, life=life, after=after or 0)),
    ]


def open_store(config: Config, path: Path) -> Store:
    """Return the configured store of a run.

    Raises:
        StoreFault: If its database cannot be opened.
    """
    if config.curation.store == "memory":
        return MemoryStore()
    learns = config.policy.kind == "vlm"
    # An attempt on a booted desktop takes minutes, so it is written immediately.
    return SqlStore.open(path, durable=config.backend.boots, screenshots=learns, checkpoints=learns)


def success_rates(first: float | None, last: float | None) -> dict[str, float]:
    """Return the known success rates on held-out tasks, which replace those of the run's attempts."""
    rates = {"success_rate_initial": first, "success_rate_final": last}
    return {name: rate for name, rate in rates.items() if rate is not None}


def configured_learning(
    prepared: PreparedRun, path: Path, instruments: Sequence[Instrument] = (), *, restore: Path | None = None
) -> Learning | None:
    """Return the configured model; None for the surrogate policy."""
    if prepared.config.policy.kind != "vlm":
        return None
    # Imported here: it needs torch.
    from dartsim.run.learning import learning

    checkpoints = None if prepared.config.curation.store == "memory" else path / CHECKPOINTS_FOLDER
    return learning(prepared, report_preparing(instruments), checkpoints=checkpoints, restore=restore)


def refuse_used(path: Path, *, ours: bool = False) -> None:
    """Refuse a directory with a run in it; ``ours``: this process has locked it."""
    if not ours and is_locked(path):
        refuse_locked(path)
    if (path / SUMMARY).exists():
        raise ConfigError(f"{path} holds a run already; give another folder with --out, or remove it")
    if (path / CONFIG).exists():
        raise ConfigError(
            f"{path} holds a run that did not come to its end; go on with `dartsim run {path}`, give another folder "
            "with --out, or remove it"
        )
    if found := next((name for name in OWN if (path / name).exists()), None):
        raise ConfigError(f"{path} holds {found}, which a run writes itself; give another folder with --out")


def meta(config: Config, result: RunResult) -> dict[str, Any]:
    """Return the facts that identify a run: names, seed, hashes, versions, and how it ended."""
    return {
        "name": config.name,
        "preset": config.preset,
        "seed": config.run.seed,
        "event_hash": result.event_hash,
        "domain_hash": result.domain_hash,
        "num_events": result.num_events,
        "interrupted": result.interrupted,
        "ended_by_alarm": result.alarm,
        "virtual": config.backend.virtual,
        "surrogate": config.policy.kind == "surrogate" and config.policy.agent.rule == "drawn",
        "versions": {
            "python": python_version(),
            **{name: version(name) for name in ("dartsim", "simpy", "numpy")},
        },
    }
