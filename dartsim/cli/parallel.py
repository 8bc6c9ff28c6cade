"""Jobs of the laboratory on all cores, one process each, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dartsim.cli.console import errors
from dartsim.lab import InProcess, Job, Outcome, Runner, run_job
from dartsim.real.machine import usable_cores
from dartsim.real.processes import Pool, process_pool

SPEED_SECONDS = 600.0
"""How far back a bar looks for its speed: a simulation may take a minute, and a speed needs several of them."""


class Cores:
    """Runs jobs on all cores; a context manager, which ends its processes.

    Args:
        processes: How many at a time; all usable cores by default.
    """

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or usable_cores()
        self._pool: Pool | None = None

    def __enter__(self) -> Self:
        self._pool = process_pool(self._processes)
        return self

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """Yield each job's place and outcome, in the order in which they end."""
        assert self._pool is not None, "used as a context manager"
        places: dict[Future[Outcome], int] = {self._pool.submit(run_job, job): place for place, job in enumerate(jobs)}
        for future in as_completed(places):
            yield places[future], future.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._pool is not None
        self._pool.__exit__(kind, error, where)
        self._pool = None


class Counted:
    """A runner that moves a bar by the simulations of every job that ends.

    Args:
        inner: What runs the jobs.
        progress: Where the bar is.
        name: What it is called.
        expected: Simulations that are expected in all, one for each seed of a job; more are counted as they come.
    """

    def __init__(self, inner: Runner, progress: Progress, name: str, expected: int = 0) -> None:
        self._inner = inner
        self._progress = progress
        self._expected = expected
        self._given = 0
        self._task = progress.add_task(name, total=expected, live="")

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """Yield as the inner runner does."""
        self._given += sum(len(job.seeds) for job in jobs)
        self._progress.update(self._task, total=max(self._expected, self._given))
        for place, outcome in self._inner.run(jobs):
            self._progress.update(self._task, advance=len(jobs[place].seeds), live=jobs[place].name)
            yield place, outcome

    def done(self) -> None:
        """Say that no more jobs come."""
        self._progress.update(self._task, total=self._given)


@contextmanager
def job_bars(console: Console = errors) -> Iterator[Progress]:
    """Show how many runs are done; nothing where output is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[live]}"),
    )
    show = console.is_terminal
    with Progress(*columns, console=console, disable=not show, speed_estimate_period=SPEED_SECONDS) as progress:
        yield progress


class OnRay:
    """Runs jobs on a Ray cluster, as many at a time as it has CPUs.

    Args:
        address: The cluster, as ``ray.address``.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """Yield each job's place and outcome once all have ended."""
        from dartsim.real.ray_cluster.sweep import map_runs

        yield from enumerate(map_runs(_run_there, jobs, address=self._address))


def _run_there(job: Job, tell: Callable[[float], None]) -> Outcome:
    outcome = run_job(job)
    tell(job.config.run.hours)
    return outcome


@contextmanager
def runner_for(processes: int | None = None, ray: str | None = None) -> Iterator[Runner]:
    """Give a runner on a Ray cluster, on so many cores (all by default), or in this process where there is one.

    Args:
        processes: Runs at a time on this machine.
        ray: Address of a cluster.
    """
    number = processes or usable_cores()
    if ray is not None:
        yield OnRay(ray)
    elif number == 1:
        yield InProcess()
    else:
        with Cores(number) as cores:
            yield cores
