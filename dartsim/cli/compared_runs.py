"""The runs of a comparison, each with a directory of its own, on all cores or on a Ray cluster.

From a cluster, directories come back as archives, so that nodes need share no disk.
"""

from __future__ import annotations

import io
import logging
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dartsim.cli.console import errors
from dartsim.config import Config, to_toml
from dartsim.lab.sweep import Report, WithProgress, executor_for, progress_bar


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison: its configuration, and where its directory goes."""

    config: Config
    path: Path

    @property
    def name(self) -> str:
        """Name in progress bars and messages."""
        return f"{self.config.preset} seed {self.config.run.seed}"

    @property
    def finished(self) -> bool:
        """Whether its directory contains the finished run of this very configuration."""
        from dartsim.observe.rundir import CONFIG, SUMMARY

        done = (self.path / SUMMARY).is_file()
        return done and (self.path / CONFIG).read_text(encoding="utf-8") == to_toml(self.config)


def make_runs(runs: Sequence[ComparedRun], ray: str | None = None) -> None:
    """Make the unfinished runs, with one progress bar, on this machine's cores or on a Ray cluster.

    Raises:
        ConfigError: If there is no such cluster.
    """
    left = [run for run in runs if not run.finished]
    for run in left:
        shutil.rmtree(run.path, ignore_errors=True)  # of an interrupted run
    if not left:
        return
    with executor_for(ray=ray) as executor, progress_bar(errors) as progress:
        counted = WithProgress(executor, progress, "runs")
        for number, archive in counted.run(make_run if ray is None else make_archive, left):
            if archive is not None:
                unpack(archive, left[number].path)


def make_run(run: ComparedRun, report: Report) -> None:
    """Make one run; its warnings start with its name."""
    from dartsim.lab.bounds import bounds
    from dartsim.observe import ticker
    from dartsim.run.execute import execute

    logging.getLogger().handlers = [named_handler(run.name)]
    progress = ticker(lambda now: report(now / 3600.0 / run.config.run.hours))
    execute(run.config, run.path, [progress], more_figures=bounds)


def make_archive(run: ComparedRun, report: Report) -> bytes:
    """Make a run on any node, and return its directory as an archive."""
    from dartsim.real.scratch import scratch_folder

    with scratch_folder("run") as folder:
        path = folder / run.path.name
        make_run(ComparedRun(run.config, path), report)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            tar.add(path, arcname=".")
        return archive.getvalue()


def unpack(archive: bytes, path: Path) -> None:
    """Write the archive of a run's directory to its place."""
    path.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        tar.extractall(path, filter="data")


def named_handler(name: str) -> logging.Handler:
    """Return a handler that writes warnings to standard error, each after the run's name."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    return handler
