"""A configuration from beginning to end: simulated, with everything it leaves behind in one folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from dartsim.config import Config, to_toml
from dartsim.curation import MemoryStore
from dartsim.curation.sql import SqlStore, open_sqlite
from dartsim.errors import ConfigError
from dartsim.ports import Store
from dartsim.run.bounds import bounds
from dartsim.run.curve import learning_curve
from dartsim.run.finished import Finished
from dartsim.run.models import Models, models
from dartsim.run.realtime import run_realtime
from dartsim.run.samples import Samples
from dartsim.run.simulation import run_simulation
from dartsim.trace import Trace
from dartsim.trace.metrics import JsonlSink, TensorBoardSink
from dartsim.trace.rundir import SUMMARY, RunDir, write_run
from dartsim.types import Weights

if TYPE_CHECKING:
    from dartsim.run.learning import Learning

DATABASE = "run.db"
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
BEST, SUCCESSES = "best", "successes"
"""Folders of a run whose model learned: the promoted weights, and the successes that it keeps."""


def execute(
    config: Config,
    path: Path,
    *,
    on_start: Callable[[Trace], None] | None = None,
    on_advance: Callable[[float], None] | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
    every_seconds: float = 60.0,
) -> tuple[RunDir, Finished]:
    """Simulate a configuration, with the model that it trains if it has one, and write its folder.

    Args:
        config: What to run.
        path: The run's folder; it must not hold a run yet.
        on_start: Given the trace before anything happens.
        on_advance: Called with the virtual time now and then.
        on_step: Given the name, the steps done and the steps to do of what comes before the run.
        every_seconds: Virtual seconds between two such calls.

    Raises:
        ConfigError: If the configuration names what does not exist, or the folder holds a run already.
    """
    found = models(config)
    refuse_used(path)
    trained = _learning(found, path, on_step)
    claim(path)
    samples = Samples() if trained else None
    first = trained.evaluate(Weights(0)) if trained else None
    with ExitStack() as stack:
        store: Store = MemoryStore()
        if config.curation.store == "sqlite":
            sql = SqlStore(open_sqlite(path / DATABASE))
            stack.callback(sql.dispose)
            store = sql
        sinks = [
            stack.enter_context(JsonlSink(path / METRICS)),
            stack.enter_context(TensorBoardSink(path / TENSORBOARD)),
        ]

        def start(trace: Trace) -> None:
            trace.sinks.extend(sinks)
            if samples is not None:
                trace.watchers.append(samples)
            if on_start is not None:
                on_start(trace)

        parts: dict[str, Any] = {"store": store, "learning": trained, "on_start": start, "on_advance": on_advance}
        if config.backend.virtual:
            result = run_simulation(found, **parts, every_seconds=every_seconds)
        else:
            result = run_realtime(found, **parts, folder=path)
    more: dict[str, Any] = {}
    if trained is not None and samples is not None:
        last = trained.evaluate(trained.newest)
        trained.save(path)
        trained.save_successes(path / SUCCESSES)
        more = {
            **success_rates(first, last),
            "learning": learning_curve(result.trace.snapshots, list(result.trace.updates), first, last),
            "samples": samples.write(path, trained.grammar),
            **trained.figures(),
        }
    run = write_run(
        path,
        result.trace,
        config=config.model_dump(mode="json"),
        config_toml=to_toml(config),
        summary={**result.figures, "bias": result.bias, **bounds(found, result.figures), **more},
        meta=meta(config, result),
    )
    # Imported here: the page needs jinja2 and plotly, which nothing else of a run does.
    from dartsim.trace.report import render_report

    render_report(run)
    return run, result


def success_rates(first: float | None, last: float | None) -> dict[str, float]:
    """Return the success rates on held-out tasks that are known, in place of those of the run's attempts."""
    rates = {"success_rate_initial": first, "success_rate_final": last}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _learning(found: Models, path: Path, on_step: Callable[[str, int, int], None] | None) -> Learning | None:
    if found.config.policy.kind != "vlm":
        return None
    # Imported here: it brings torch, which a simulation of the system alone does not need.
    from dartsim.run.learning import learning

    return learning(found, on_step, best=path / BEST)


def refuse_used(path: Path) -> None:
    """Refuse a folder that holds a run.

    Raises:
        ConfigError: If it does.
    """
    if (path / SUMMARY).exists():
        raise ConfigError(f"{path} holds a run already; give another folder with --out, or remove it")


def claim(path: Path) -> None:
    """Make a run's folder, and remove what an unfinished run left in it.

    Raises:
        ConfigError: If it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be made a run's folder: {error.strerror}") from None
    for leftover in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", METRICS):
        (path / leftover).unlink(missing_ok=True)
    for folder in (BEST, SUCCESSES):
        shutil.rmtree(path / folder, ignore_errors=True)


def meta(config: Config, result: Finished) -> dict[str, Any]:
    """Return what identifies a run, apart from its figures."""
    return {
        "preset": config.preset,
        "seed": config.run.seed,
        "event_hash": result.event_hash,
        "num_events": result.num_events,
        "interrupted": result.interrupted,
        "virtual": config.backend.virtual,
        "surrogate": config.policy.kind == "surrogate",
        "versions": {
            "python": python_version(),
            **{name: version(name) for name in ("dartsim", "simpy", "numpy")},
        },
    }
