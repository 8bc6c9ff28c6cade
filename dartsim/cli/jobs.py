"""The runs of a comparison, on all cores of this machine; ``dartsim.cli.on_ray`` runs them on a cluster."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.cli.progress import bars
from dartsim.config import Config


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    index: int
    config: Config
    path: Path

    @property
    def name(self) -> str:
        """How its bar is called."""
        return f"{self.config.preset} seed {self.config.run.seed}"


def run_jobs(jobs: Sequence[Job]) -> None:
    """Run all jobs on all cores, one process each, with one progress bar each."""
    from dartsim.real.machine import usable_cores
    from dartsim.real.processes import process_pool

    hours = multiprocessing.get_context("spawn").Array("d", len(jobs), lock=False)
    num_processes = min(len(jobs), usable_cores())
    with (
        bars() as progress,
        process_pool(num_processes, _prepare, (hours,)) as pool,
    ):
        tasks = [progress.add_task(job.name, total=job.config.run.hours, live="") for job in jobs]
        futures: list[Future[None]] = [pool.submit(_run_job, job) for job in jobs]
        while not all(future.done() for future in futures):
            for job, task in zip(jobs, tasks, strict=True):
                progress.update(task, completed=hours[job.index])
            for future in futures:
                if future.done():
                    future.result()
            time.sleep(0.1)
        for future, job, task in zip(futures, jobs, tasks, strict=True):
            future.result()
            progress.update(task, completed=job.config.run.hours)


_progress: Any = None
"""In a worker process: the simulated hours of every job, shared with the parent."""


def _prepare(hours: Any) -> None:
    global _progress  # a worker process has one parent to report to
    _progress = hours


def named_handler(name: str) -> logging.Handler:
    """Return what writes warnings to standard error behind the name of the run that they are of."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    return handler


def _run_job(job: Job) -> None:
    from dartsim.lab.bounds import bounds
    from dartsim.run.execute import execute

    logging.getLogger().handlers = [named_handler(job.name)]

    def advance(now: float) -> None:
        _progress[job.index] = now / 3600.0

    execute(job.config, job.path, on_advance=advance, more_figures=bounds)
