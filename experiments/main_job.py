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

from dartsim.config import Config, load
from dartsim.lab.sweep import ArmRun
from dartsim.run.execute import execute
from experiments.study import Experiment, Figures, Options

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
    changes = [f"run.seed={seed}", "run.max_segments=0"]
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
    runs = options.sweep(run_seed, [ArmRun("main job", seed, (seed, options.quick)) for seed in range(options.seeds)])
    return {
        "runs": runs,
        "learned": sum(run["success_rate_final"] >= WANTED for run in runs),
        "wanted_success_rate": WANTED,
        "config": {"preset": "tiny"},
    }


def summary(figures: Figures) -> str:
    """The main job over seeds, in words."""
    runs = figures["runs"]

    def spread(name: str, form: str) -> str:
        values = [run[name] for run in runs]
        return f"{min(values):{form}} to {max(values):{form}}"

    return (
        f"{figures['learned']} of {len(runs)} seeds end at {figures['wanted_success_rate']:.0%} or more. Success on "
        f"held-out tasks: {spread('success_rate_initial', '.1%')} at first, {spread('success_rate_final', '.1%')} at "
        f"last. A run takes {spread('total_updates', '')} updates, {spread('simulated_hours', '.1f')} simulated hours "
        f"and {spread('cpu_seconds', '.0f')} CPU seconds.\n"
    )


STUDY = Experiment(name="main_job", about=str(__doc__), measure=measure, seeds=10, tables={"main-job": summary})

if __name__ == "__main__":
    STUDY.run()
