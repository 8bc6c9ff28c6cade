"""The main job over seeds: does a tiny model learn errands on a simulated cluster, how fast, and how surely?

python -m experiments.main_job            ten seeds, about half an hour on two cores
python -m experiments.main_job --quick    one seed, cut short: the same keys
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dartsim.config import Config, from_tree, load, merge
from dartsim.config.load import parse_override
from dartsim.config.packaged import preset
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

SAME = ("run", "tasks", "policy", "cluster")
"""Sections that DART's schedule takes from the main job."""

SAME_SETTINGS = (
    "rollout.num_envs",
    "rollout.num_workers",
    "rollout.max_turns",
    "trainer.optimizer.learning_rate",
    "trainer.objective.kl_coefficient",
    "trainer.objective.entropy_coefficient",
    "trainer.evaluation.every_updates",
    "trainer.evaluation.attempts_per_task",
)
"""Settings that it takes: desktops and engines, and what a model with random weights needs."""


def config(seed: int, quick: bool) -> Config:
    """Return the main job's configuration."""
    changes = [f"run.seed={seed}", "run.max_segments=0"]
    return load("errands", overrides=[*changes, "run.updates=20"] if quick else changes)


def dart_config(main: Config, hours: float) -> Config:
    """Return the main job under the schedule, curation and objective of the preset ``dart``, for some hours."""
    tree: Any = merge(preset("dart"), {name: value for name, value in preset("errands").items() if name in SAME})
    for name in SAME_SETTINGS:
        value: Any = main
        for part in name.split("."):
            value = getattr(value, part)
        tree = merge(tree, parse_override(f"{name}={value}"))
    changes = (f"run.seed={main.run.seed}", f"run.hours={hours}", "run.updates=100000", "run.target_success=none")
    for change in (*changes, "run.max_segments=0"):
        tree = merge(tree, parse_override(change))
    return from_tree({**tree, "preset": "dart"})


def run_seed(job: tuple[int, bool]) -> dict[str, Any]:
    """Return the figures of one seed of the main job, and of DART's schedule after the same simulated hours."""
    main = config(*job)
    began = time.process_time()
    summary = executed(main)
    found = {name: summary[name] for name in FIGURES}
    found |= {"turns_per_attempt": summary["turns_per_trajectory"], "cpu_seconds": time.process_time() - began}
    dart = executed(dart_config(main, summary["simulated_hours"]))
    curves = {"curve": held_out(summary), "dart_curve": held_out(dart)}
    return {**found, "dart_success_rate_final": dart["success_rate_final"], **curves}


def executed(config: Config) -> dict[str, Any]:
    """Run a configuration in a temporary folder and return its summary."""
    with TemporaryDirectory() as folder:
        return execute(config, Path(folder) / "run")[0].summary


def held_out(summary: Figures) -> Figures:
    """Return success on held-out tasks over simulated hours."""
    return dict(summary["learning"]["held_out"])


def measure(options: Options) -> dict[str, Any]:
    """Run all seeds on all cores."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before a worker process imports torch
    runs = options.sweep(run_seed, [ArmRun("main job", seed, (seed, options.quick)) for seed in range(options.seeds)])
    return {
        "runs": runs,
        "learned": sum(run["success_rate_final"] >= WANTED for run in runs),
        "wanted_success_rate": WANTED,
        "config": {"preset": "errands"},
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
        f"last; under `dart`, {spread('dart_success_rate_final', '.1%')} after the same hours. An attempt takes "
        f"{spread('turns_per_attempt', '.1f')} turns; a run {spread('total_updates', '')} updates, "
        f"{spread('simulated_hours', '.1f')} simulated hours and {spread('cpu_seconds', '.0f')} CPU seconds.\n"
    )


STUDY = Experiment(name="main_job", about=str(__doc__), measure=measure, seeds=10, tables={"main-job": summary})

if __name__ == "__main__":
    STUDY.run()
