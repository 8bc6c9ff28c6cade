"""The main job over seeds: does a tiny model learn to click on a simulated cluster, how fast, and how surely?

python -m experiments.main_job            ten seeds, about ten minutes on two cores
python -m experiments.main_job --quick    one seed, cut short: the same keys
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from dartsim.config import Config, load
from dartsim.real.machine import usable_cores
from dartsim.real.processes import process_pool
from dartsim.run.execute import execute
from experiments.common import Options, run_experiment

WANTED = 0.9
"""Success on held-out tasks that counts as learned."""

FIGURES = (
    "seed",
    "success_rate_initial",
    "success_rate_final",
    "total_updates",
    "simulated_hours",
    "env_utilization",
    "gpu_utilization",
    "staleness_max",
    "event_hash",
)


def config(seed: int, quick: bool) -> Config:
    """Return the main job's configuration."""
    changes = [f"run.seed={seed}", "recorder.max_segments=0"]
    return load(preset_name="tiny", overrides=[*changes, "run.updates=40"] if quick else changes)


def run_seed(job: tuple[int, bool]) -> dict[str, Any]:
    """Run one seed and return its figures, with the CPU time of learning and simulating."""
    began = time.process_time()
    with TemporaryDirectory() as folder:
        run, _ = execute(config(*job), Path(folder) / "run")
        found = {name: run.summary[name] for name in FIGURES}
    return {**found, "cpu_seconds": time.process_time() - began}


def measure(options: Options) -> dict[str, Any]:
    """Run all seeds on all cores."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before a worker process imports torch
    jobs = [(seed, options.quick) for seed in range(options.seeds)]
    processes = min(len(jobs), usable_cores())
    with process_pool(processes) as pool:
        runs = []
        for found in pool.map(run_seed, jobs):
            runs.append(found)
            options.console.print(f"seed {found['seed']}: {found['success_rate_final']:.1%}")
    return {
        "runs": runs,
        "learned": sum(run["success_rate_final"] >= WANTED for run in runs),
        "wanted_success_rate": WANTED,
        "config": config(0, options.quick).model_dump(mode="json"),
    }


def show(figures: dict[str, Any], console: Console) -> None:
    """Print one line a seed."""
    table = Table("seed", "first", "last", "updates", "simulated h", "CPU s", show_edge=False)
    for run in figures["runs"]:
        table.add_row(
            str(run["seed"]),
            f"{run['success_rate_initial']:.1%}",
            f"{run['success_rate_final']:.1%}",
            str(run["total_updates"]),
            f"{run['simulated_hours']:.1f}",
            f"{run['cpu_seconds']:.0f}",
        )
    console.print(table)
    console.print(f"{figures['learned']} of {len(figures['runs'])} seeds reached {figures['wanted_success_rate']:.0%}")


if __name__ == "__main__":
    run_experiment("main_job", measure, show, about=str(__doc__).splitlines()[0], seeds=10)
