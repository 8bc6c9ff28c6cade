"""Runs of a comparison as tasks on a Ray cluster: each run's folder comes back, so that nodes need share no disk."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.cli.jobs import Job
from dartsim.cli.progress import bars

if TYPE_CHECKING:
    from dartsim.real.ray_cluster.sweep import Tell


def run_jobs_on_ray(jobs: Sequence[Job], address: str, *, cpus: float = 1.0) -> None:
    """Run all jobs on a cluster, as many at a time as it has CPUs, with one progress bar each.

    Raises:
        ConfigError: If there is no such cluster.
    """
    from dartsim.real.ray_cluster.sweep import map_runs

    with bars() as progress:
        tasks = [progress.add_task(job.name, total=job.config.run.hours, live="") for job in jobs]

        def done(number: int, archive: bytes) -> None:
            unpack(archive, jobs[number].path)
            progress.update(tasks[number], completed=jobs[number].config.run.hours)

        map_runs(
            packed,
            jobs,
            address=address,
            cpus=cpus,
            on_progress=lambda number, hours: progress.update(tasks[number], completed=hours),
            on_done=done,
        )


def packed(job: Job, tell: Tell) -> bytes:
    """Run a job wherever this is called, and return its folder as an archive."""
    from dartsim.lab.bounds import bounds
    from dartsim.real.scratch import scratch_folder
    from dartsim.run.execute import execute

    with scratch_folder("run") as folder:
        path = folder / job.path.name
        execute(job.config, path, on_advance=lambda now: tell(now / 3600.0), more_figures=bounds)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            tar.add(path, arcname=".")
        return archive.getvalue()


def unpack(archive: bytes, path: Path) -> None:
    """Write the archive of a run's folder to its place."""
    path.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        tar.extractall(path, filter="data")
