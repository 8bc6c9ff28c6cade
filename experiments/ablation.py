"""The ablation: DART's parts added and removed, and the price of staleness, on a model that really learns.

python -m experiments.ablation            five seeds, 100 runs: half an hour of CPU time, on two cores
python -m experiments.ablation --quick    one seed, cut short: the same keys
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dartsim.real.machine import usable_cores
from dartsim.real.processes import process_pool
from experiments.ablation_arms import ARMS, config, jobs, overrides
from experiments.ablation_tables import PUBLISHED, arms_table, staleness_table
from experiments.common import Options, run_experiment

Job = tuple[str, int, int]
"""Arm, seed, staleness bound."""


def measure(options: Options) -> dict[str, Any]:
    """Run every arm with every seed on all cores, seed by seed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before a worker process imports torch
    work = [(arm, seed, bound) for seed in range(options.seeds) for arm, bound in jobs(seed)]
    with TemporaryDirectory() as folder:
        runs = list(_run_all(work, Path(folder), options))
    order = {job: number for number, job in enumerate(work)}
    runs.sort(key=lambda run: order[run["arm"], run["seed"], run["bound"]])
    return {
        "arms": [run for run in runs if run["bound"] == (0 if run["arm"] == "coupled" else 1)],
        "staleness": [_brief(run) for run in runs if run["arm"] == "dart"],
        "staleness_without_alignment": [_brief(run) for run in runs if run["arm"] == "dart - alignment"],
        "published": PUBLISHED,
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {"dart": config("dart", 0, quick=options.quick).model_dump(mode="json")},
        "overrides": {arm: overrides(arm, 0 if arm == "coupled" else 1) for arm in ARMS},
    }


def _brief(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run of the staleness study; its bound says which."""
    return {name: value for name, value in run.items() if name != "arm"}


def _run_all(work: list[Job], folder: Path, options: Options) -> Iterable[dict[str, Any]]:
    """Make the base models, then run all jobs; yield what is done."""
    # Imported in the worker processes only when needed: torch takes its seconds.
    from experiments.ablation_runs import base_model, run_arm

    seeds = sorted({seed for _, seed, _ in work})
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        process_pool(usable_cores()) as pool,
        Progress(*columns, console=options.console) as progress,
    ):
        shown = progress.add_task("base models", total=len(seeds) + len(work))
        for made in as_completed([pool.submit(base_model, s, folder / str(s), options.quick) for s in seeds]):
            made.result()
            progress.advance(shown)
        futures = [pool.submit(run_arm, arm, s, bound, folder / str(s), options.quick) for arm, s, bound in work]
        for done in as_completed(futures):
            run = done.result()
            text = f"{run['arm']}, bound {run['bound']}, seed {run['seed']}: {run['success_rate_final']:.0%}"
            progress.update(shown, advance=1, description=text)
            if not options.console.is_terminal:
                options.console.print(f"{text}, {run['cpu_seconds']:.0f} CPU s")
            yield run


def show(figures: dict[str, Any], console: Console) -> None:
    """Print both tables."""
    for head, rows in (arms_table(figures), staleness_table(figures)):
        table = Table(*head, show_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)


if __name__ == "__main__":
    run_experiment("ablation", measure, show, about=str(__doc__).splitlines()[0], seeds=5)
