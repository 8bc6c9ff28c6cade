"""The runs of a comparison, on all cores: each writes its own directory, or nothing."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dartsim.config import Config, to_toml
from dartsim.config.load import Scheduler
from dartsim.core.errors import ConfigError
from dartsim.core.plugin_errors import plugin_errors
from dartsim.lab.progress import progress_bar
from dartsim.lab.sweep import InProcess, Report, Results, WithProgress, executor_for, result_key

if TYPE_CHECKING:
    from rich.console import Console


def by_name(schedulers: Iterable[Scheduler] | Mapping[str, Scheduler]) -> dict[str, Scheduler]:
    """Return schedulers by name: a preset's, the stem of a file, or as given.

    Raises:
        ConfigError: If two have the same name.
    """
    if isinstance(schedulers, Mapping):
        return dict(schedulers)
    by_name: dict[str, Scheduler] = {}
    for scheduler in schedulers:
        name = scheduler.name if isinstance(scheduler, Config) else str(scheduler)
        if not isinstance(scheduler, Config) and (name.endswith(".toml") or Path(name).is_file()):
            name = Path(name).stem
        if by_name.setdefault(name, scheduler) != scheduler:
            raise ConfigError(f"two schedulers are named {name!r}: {by_name[name]} and {scheduler}; rename a file")
    return by_name


def new_run(scheduler: str | Path) -> str:
    """Return the argument of ``dartsim run`` for a new run of a scheduler.

    For a run's folder it is the configuration file in it, because the folder itself would resume that run.
    """
    from dartsim.observe.rundir import CONFIG

    file = Path(scheduler) / CONFIG
    return str(file) if file.is_file() else str(scheduler)


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison: ``replay`` is the command that repeats it, ``path`` its directory, if it has one."""

    scheduler: str
    config: Config
    replay: str = ""
    path: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.scheduler} seed {self.config.run.seed}"

    @property
    def key(self) -> str:
        """What its result depends on."""
        return result_key(self.config)

    @property
    def same_config(self) -> bool:
        """Whether the run in its directory has exactly this configuration."""
        return self.path is not None and _has_config(self.path, self.config)


def _has_config(path: Path, config: Config) -> bool:
    from dartsim.observe.rundir import CONFIG

    return (path / CONFIG).is_file() and (path / CONFIG).read_text(encoding="utf-8") == to_toml(config)


def _is_finished(path: Path, config: Config) -> bool:
    """Whether a directory contains a finished run of exactly this configuration."""
    from dartsim.observe.rundir import SUMMARY

    file = path / SUMMARY
    return _has_config(path, config) and file.is_file() and not json.loads(file.read_bytes())["interrupted"]


class EndedRun(NamedTuple):
    """A finished run: the contents of its ``summary.json``, and when each update finished, in hours."""

    summary: Mapping[str, Any]
    update_hours: Sequence[float]


def make_runs(
    runs: Sequence[ComparedRun], console: Console, processes: int | None = None, results: Results | None = None
) -> list[EndedRun]:
    """Run what is not known, with one progress bar.

    ``results`` has the directories of finished runs, which are copied: of earlier comparisons with the same code.
    """
    new = {run.name for run in runs if run.path is not None and not run.path.exists()}
    left = [run for run in runs if not _known(run, results)]
    if copied := len(new - {run.name for run in left}):
        console.print(f"{copied} of {len(runs)} runs are copied from earlier comparisons", soft_wrap=True)
    simulated: dict[str, EndedRun] = {}
    if left:
        with executor_for(processes) as executor, progress_bar(console) as progress:
            make = _make_here if isinstance(executor, InProcess) else make_run
            for number, made in WithProgress(executor, progress, "runs").run(make, left):
                run = left[number]
                if made is not None:
                    simulated[run.name] = made
                elif results is not None and run.path is not None:
                    results.add(run.key, str(run.path.resolve()))
    return [simulated[run.name] if run.path is None else _read(run.path) for run in runs]


def _known(run: ComparedRun, results: Results | None) -> bool:
    """Whether a run has its results, perhaps by copying them; else nothing is left in its directory."""
    if run.path is None:
        return False
    found = None if results is None else results.get(run.key)
    if found == str(run.path.resolve()) and _is_finished(run.path, run.config):
        return True
    shutil.rmtree(run.path, ignore_errors=True)  # of other code, or interrupted
    if found is None or not _is_finished(Path(found), run.config):
        return False
    shutil.copytree(found, run.path)
    return True


def make_run(run: ComparedRun, report: Report) -> EndedRun | None:
    """Execute a run in this process; its warnings start with the run's name."""
    logging.getLogger().handlers = [named_handler(run.name)]
    return _make_here(run, report)


def _make_here(run: ComparedRun, report: Report) -> EndedRun | None:
    """Execute a run; return its result if it has no directory."""
    from dartsim.lab.bounds import bounds
    from dartsim.observe import ticker
    from dartsim.run.execute import execute, run_summary
    from dartsim.run.prepare import prepare
    from dartsim.run.run_prepared import run_prepared

    progress = ticker(lambda now: report(now / 3600.0 / run.config.run.hours))
    with plugin_errors(f"{run.name}: "):
        if run.path is not None:
            execute(run.config, run.path, [progress], more_figures=bounds)
            return None
        prepared = prepare(run.config)
        result = run_prepared(prepared, instruments=[progress])
        summary = run_summary(prepared, result, bounds)
    return EndedRun(summary, [update.time / 3600.0 for update in result.recorder.updates])


def _read(path: Path) -> EndedRun:
    from dartsim.observe.rundir import METRICS, read_run, reading

    summary = read_run(path).summary
    with reading(path):
        lines = (path / METRICS).read_text("utf-8").splitlines()
        return EndedRun(summary, [json.loads(line)["time"] / 3600.0 for line in lines])


def named_handler(name: str) -> logging.Handler:
    """Return a handler that writes warnings to standard error, each prefixed with the run's name."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    return handler
