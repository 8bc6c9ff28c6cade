"""``dartsim compare``: several presets on the same workload, side by side."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from dartsim.cli.console import out, write_json
from dartsim.cli.options import Hours, Json, Out, Overrides, new_folder, settings
from dartsim.cli.progress import bars
from dartsim.cli.tables import SHOWN, figure_table
from dartsim.config import Config
from dartsim.errors import ConfigError
from real.machine import usable_cores

EXAMPLES = (
    "Examples:\n\n"
    "dartsim compare coupled dart-measured\n\n"
    "dartsim compare coupled dart-measured --seeds 3 --hours 8 --json figures.json\n\n"
    "dartsim compare dart dart-released --set cluster.hosts.count=8 --set rollout.num_envs=80"
)

PUBLISHED = {
    "coupled": {"trained_turns_per_minute": 22.6, "env_utilization": 0.122, "gpu_utilization": 0.296},
    "dart-measured": {"trained_turns_per_minute": 43.6, "env_utilization": 0.677, "gpu_utilization": 0.467},
}
"""The efficiency table of DART (arXiv 2509.23866, project page), by the presets that have its run's settings."""

COMPARED = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "staleness_mean",
    "staleness_max",
    "wasted_share",
    "bound_trained_turns_per_minute",
)
"""What the JSON holds of each run."""


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


def compare(
    presets: Annotated[list[str], typer.Argument(help="Presets; see `dartsim presets`.", metavar="PRESET...")],
    overrides: Overrides = None,
    hours: Hours = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each preset, from 0; figures are means.")] = 1,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Run presets side by side, on all cores, and show one table and one page.

    Every run's own folder lies below the comparison's.
    """
    from dartsim.trace.report import render_comparison
    from dartsim.trace.rundir import read_run

    folder = out_folder or new_folder("compare-" + "-".join(dict.fromkeys(presets)))
    jobs = plan(presets, settings(overrides, hours, None), seeds, folder)
    run_jobs(jobs)
    runs = [read_run(job.path) for job in jobs]
    first_seed = [run for run in runs if run.summary["seed"] == 0]
    page = render_comparison(first_seed, folder / "comparison.html", published=PUBLISHED)
    if json_file != "-":
        means = [(name, _mean([r.summary for r in runs if r.name == name])) for name in dict.fromkeys(presets)]
        out.print(figure_table(means))
        if seeds > 1:
            out.print(f"means over {seeds} seeds; the page shows seed 0")
        if any(run.summary["surrogate"] for run in runs):
            out.print("surrogate policy: outcomes are drawn, nothing was learned")
        out.print(f"report: {page.resolve().as_uri()}", soft_wrap=True)
    if json_file is not None:
        write_json([_row(run.summary) for run in runs], json_file)


def plan(presets: Sequence[str], overrides: Sequence[str], seeds: int, folder: Path) -> list[Job]:
    """Return the runs of a comparison, each checked before any of them starts.

    Raises:
        ConfigError: If a preset or setting is wrong, or the folder holds a comparison already.
    """
    from dartsim.config import load
    from dartsim.run.models import models

    if folder.exists():
        raise ConfigError(f"{folder} exists already; give another folder with --out")
    jobs: list[Job] = []
    for preset in dict.fromkeys(presets):
        for seed in range(seeds):
            config = load(preset_name=preset, overrides=[*overrides, f"run.seed={seed}"])
            models(config)
            jobs.append(Job(len(jobs), config, folder / f"{preset}-seed{seed}"))
    return jobs


def run_jobs(jobs: Sequence[Job]) -> None:
    """Run all jobs on all cores, one process each, with one progress bar each."""
    context = multiprocessing.get_context("spawn")
    hours = context.Array("d", len(jobs), lock=False)
    num_processes = min(len(jobs), usable_cores())
    with (
        bars() as progress,
        ProcessPoolExecutor(num_processes, mp_context=context, initializer=_prepare, initargs=(hours,)) as pool,
    ):
        tasks = [progress.add_task(job.name, total=job.config.run.hours, live="") for job in jobs]
        futures: list[Future[None]] = [pool.submit(_run_job, job) for job in jobs]
        try:
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
        except BaseException:
            for process in list(pool._processes.values()):
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


_progress: Any = None
"""In a worker process: the simulated hours of every job, shared with the parent."""


def _prepare(hours: Any) -> None:
    global _progress  # a worker process has one parent to report to
    _progress = hours
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers


def _run_job(job: Job) -> None:
    from dartsim.run.execute import execute

    def advance(now: float) -> None:
        _progress[job.index] = now / 3600.0

    execute(job.config, job.path, on_advance=advance)


def _mean(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each shown figure over seeds; of the largest staleness, the largest."""
    found: dict[str, Any] = {}
    for name in SHOWN:
        values = [summary[name] for summary in summaries if summary.get(name) is not None]
        if values:
            found[name] = max(values) if name == "staleness_max" else mean(values)
    return found


def _row(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "preset": summary["preset"],
        "seed": summary["seed"],
        **{name: summary[name] for name in COMPARED},
    }
