"""Resumes an interrupted run: after a crash, after Ctrl-C, or for longer than it was configured.

run.lock -> config.toml -> store.recover -> checkpoint -> scheduler and measurements -> the run continues
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dartsim.config import Config, load, to_toml
from dartsim.core.errors import ConfigError
from dartsim.observe import Instrument
from dartsim.observe.metrics import read_updates
from dartsim.observe.records import HELD_OUT
from dartsim.observe.rundir import CONFIG, SUMMARY, RunDir, held, read_run, write_text
from dartsim.real.ray_cluster.backend import session
from dartsim.run.execute import BEST, MoreFigures, Parts, begin, learned, run_parts, stored
from dartsim.run.prepare import PreparedRun, prepare, prepare_run
from dartsim.run.results import RunResult
from dartsim.run.resume_point import LIVES, METRICS, ResumePoint, read_resume_point
from dartsim.store.backends import store_backend

if TYPE_CHECKING:
    from dartsim.run.learning import Learning


def resume(
    path: Path,
    *,
    hours: float | None = None,
    updates: int | None = None,
    on_resume: Callable[[Config, ResumePoint | None], None] | None = None,
    instruments: Sequence[Instrument] = (),
    more_figures: MoreFigures | None = None,
) -> tuple[RunDir, RunResult]:
    """Resume a run with its own configuration, from its last transaction.

    Args:
        path: The run directory.
        hours: Total hours of the run's time, in place of the configured ones.
        updates: Total updates, likewise.
        on_resume: Given the configuration and where the run continues, before it does; None: it had not started.
        instruments: Listen to the run.
        more_figures: As for ``execute``.

    Raises:
        ConfigError: If there is no run, it has finished, its store was in memory, or another process runs it.
        StoreFault: If its database does not answer.
    """
    config = resumable(path, hours=hours, updates=updates)
    with session(config):
        prepared = prepare_run(config)
        planned = load(path / CONFIG).run.hours
        with held(path):
            store = stored(config, path)
            with closing(store):
                resume_point = read_resume_point(store, path)
                if resume_point is not None and hours is not None:
                    refuse_hours(path, hours, resume_point.seconds / 3600.0, planned)
                if on_resume is not None:
                    on_resume(config, resume_point)
                if resume_point is not None:
                    resume_point = replace(resume_point, longer=hours is not None or updates is not None)
                    write_text(path / CONFIG, to_toml(config))
                    # Before the model is read, which takes minutes: a process killed meanwhile counts as a life.
                    store.save({LIVES: [*resume_point.lives, resume_point.as_json()]})
                    trained = learned(prepared, path, instruments, restore=resume_point.recovered.checkpoint)
                    parts = Parts(prepared, path, store, trained, first=resume_point.first, resume_point=resume_point)
                    return run_parts(parts, instruments, more_figures)
                store.clear()
            # The configuration stays: a model's warm start takes minutes, and the process may be killed.
            (path / SUMMARY).unlink(missing_ok=True)
            trained = learned(prepared, path, instruments)
            return begin(prepared, path, trained, instruments, more_figures)


def resumed(folder: Path, changes: Sequence[str] = (), *, best: bool = False) -> tuple[PreparedRun, Learning]:
    """Return a finished run's configuration and its model.

    Raises:
        ConfigError: If the run has not finished, had no model, or promoted no weights.
    """
    read_run(folder)
    # Nothing is promoted any more.
    changes = [*changes, "trainer.promotion.enabled=false"]
    config = load(folder / CONFIG, overrides=changes)
    if config.backend.learner_backend.starts_processes:  # nothing is trained
        config = load(folder / CONFIG, overrides=[*changes, "backend.learner=local"])
    if config.policy.kind != "vlm":
        raise ConfigError(f"{folder} was run with a surrogate policy: it has no model to evaluate")
    state = folder / BEST if best else folder
    if not state.is_dir():
        raise ConfigError(
            f"{folder} has no {BEST}/: it promoted no weights (trainer.promotion); leave --best out for its last ones"
        )
    # Imported here: it needs torch, and names the extra that is missing.
    from dartsim.run.learning import learning

    prepared = prepare(config)
    return prepared, learning(prepared, resume=state)


def stored_config(path: Path, changes: Sequence[str] = ()) -> Config:
    """Return the configuration of a run, with overrides.

    Raises:
        ConfigError: If the folder is no run's.
    """
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{path} is no run's folder: it has no {CONFIG}; name a folder that `dartsim run` made")
    return load(path / CONFIG, overrides=changes)


def resumable(path: Path, *, hours: float | None = None, updates: int | None = None) -> Config:
    """Return the configuration of a run, or refuse one that cannot be resumed."""
    changes = [] if hours is None else [f"run.hours={float(hours)}"]
    changes += [] if updates is None else [f"run.updates={updates}"]
    config = stored_config(path, changes)
    if not store_backend(config.curation.store).resumable:
        raise ConfigError(
            f'{path} was run with curation.store = "{config.curation.store}", of which nothing is left; run it again, '
            'with "sqlite"'
        )
    summary = _summary(path)
    if summary is None or summary.get("interrupted", False):
        return config
    try:
        done, finished = float(summary["simulated_hours"]), int(summary["total_updates"])
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{path / SUMMARY} does not say how far the run came (simulated_hours, total_updates); remove that "
            "file, and the run goes on from its last transaction"
        ) from None
    refuse_hours(path, config.run.hours, done, load(path / CONFIG).run.hours)
    if config.run.updates is not None and config.run.updates <= finished:
        raise ConfigError(
            f"{path} has finished its {finished} updates; to go on, say how many it shall have in all: "
            f"--updates {2 * finished}"
        )
    steady = summary.get("steady")
    if hours is updates is None and steady is not None and steady["reached"]:
        raise ConfigError(
            f"{path} was steady after {done:.5g} h (run.until_steady); to go on until it is steady again, say how many "
            f"hours it shall have at most in all: --hours {max(config.run.hours, 2.0 * done):.2g}"
        )
    target = config.run.target_success
    if hours is updates is None and target is not None and _last_rate(path, finished) >= target:
        raise ConfigError(
            f"{path} has reached {target:.0%} success on held-out tasks (run.target_success); to go on until it is "
            f"found there again, say how many updates or hours it shall have at most in all: --updates {2 * finished}"
        )
    return config


def _last_rate(path: Path, finished: int) -> float:
    """Return the success rate on held-out tasks after the last update; 0 if that was not evaluated."""
    records = read_updates(path / METRICS, last=finished)
    return records[-1].metrics.get(HELD_OUT, 0.0) if records else 0.0


def refuse_hours(path: Path, hours: float, done: float, planned: float) -> None:
    """Refuse a total of hours that the run has already had; ``planned``: those that it was configured with."""
    if hours > done * (1.0 + 1e-9):
        return
    if done < planned * (1.0 - 1e-9):
        raise ConfigError(
            f"{path} is at {done:.5g} h of {planned:g} h; --hours says how many it shall have in all, and must be "
            f"above that, not {hours:g}, or be left out"
        )
    raise ConfigError(
        f"{path} has finished its {planned:g} hours; to go on, say how many it shall have in all, rather than "
        f"{hours:g}: --hours {2.0 * done:.2g}"
    )


def _summary(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        summary: Any = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        return summary if isinstance(summary, dict) else None
    return None
