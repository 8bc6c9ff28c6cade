"""The runs behind the claims: an arm is one configuration, run for every seed; its figures are means with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import track

from dartsim.config import Config, load
from dartsim.lab.bounds import bounds
from dartsim.lab.comparison import half_width
from dartsim.real.machine import usable_cores
from dartsim.real.processes import process_pool
from dartsim.run.models import models
from dartsim.run.simulation import run_simulation

Figures = dict[str, Any]

MEANS = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "gpu_utilization_rollout_phase",
    "gpu_peak_share",
    "all_gpus_utilization",
    "hybrid_gpus_utilization",
    "training_share",
    "stopped_share",
    "staleness_mean",
    "wasted_share",
    "stale_share",
    "minutes_per_version",
    "killed_per_hour",
    "bound_trained_turns_per_minute",
    "bound_desktops",
    "bound_engines",
)
"""Figures of which there is a mean over seeds; the ones that are not the run's own are made by ``derived``."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration of one claim.

    Attributes:
        claim: Which claim it belongs to.
        series: What it is a member of: a line in the figure.
        name: What is varied, in words.
        preset: The scheduler.
        hours: Simulated hours.
        workload: What the scheduler is put on; None: what the preset says.
        changes: As ``--set`` takes them.
        value: What is varied, as a number, if it is one.
    """

    claim: str
    series: str
    name: str
    preset: str
    hours: float
    workload: str | None = None
    changes: tuple[str, ...] = ()
    value: float | None = None

    def config(self, seed: int) -> Config:
        """Return the resolved configuration, without timelines and without a database."""
        own = (f"run.hours={self.hours}", f"run.seed={seed}", "recorder.max_segments=0", 'curation.store="memory"')
        return load(preset_name=self.preset, workload_name=self.workload, overrides=[*self.changes, *own])


def run_arm(job: tuple[Arm, int]) -> Figures:
    """Run an arm with one seed and return its figures."""
    arm, seed = job
    found = models(arm.config(seed))
    result = run_simulation(found)
    closed = bounds(found, result.figures, result.recorder.snapshots)
    parts: Mapping[str, float] = closed.pop("bounds", {})
    return {
        **result.figures,
        **closed,
        **derived(result.figures, found.config),
        "bound_desktops": parts.get("desktops"),
        "bound_engines": parts.get("engines"),
        "event_hash": result.event_hash,
    }


def derived(figures: Mapping[str, Any], config: Config) -> Figures:
    """Return what the claims ask for and no run writes.

    ``hybrid_gpus_utilization`` is for GPUs that train as well as answer: an update counts as busy throughout;
    ``all_gpus_utilization`` for rollout GPUs and the trainer's together, each its own share of busy time;
    ``stopped_share`` the share of desktop time spent waiting for a stopped pool; ``stale_share`` the share of
    attempts that were finished and dropped as too old; ``killed_per_hour`` requests that a restart cut off.
    """
    rollout, trainer = config.rollout.num_workers, config.cluster.learner.gpus
    busy, training = figures["gpu_utilization"], figures["trainer_shares"]["training"]
    attempts = figures["attempts"]
    return {
        "training_share": training,
        "hybrid_gpus_utilization": busy + training,
        "all_gpus_utilization": (rollout * busy + trainer * training) / (rollout + trainer),
        "stopped_share": figures["desktop_shares"]["sync_wait"],
        "stale_share": figures["dropped"].get("stale", 0) / attempts if attempts else 0.0,
        "killed_per_hour": figures["faults"].get("request_restarted", 0) / figures["simulated_hours"],
    }


def run_arms(arms: Sequence[Arm], seeds: Sequence[int], console: Console) -> dict[Arm, list[Figures]]:
    """Run every arm with every seed, on all cores."""
    jobs = [(arm, seed) for arm in arms for seed in seeds]
    with process_pool(min(len(jobs), usable_cores())) as pool:
        done = pool.map(run_arm, jobs)
        runs = list(track(done, "claims", total=len(jobs), console=console, disable=not console.is_terminal))
    return by_arm(jobs, runs)


def by_arm(jobs: Iterable[tuple[Arm, int]], runs: Iterable[Figures]) -> dict[Arm, list[Figures]]:
    """Return the runs of each arm, in the order of the jobs."""
    found: dict[Arm, list[Figures]] = {}
    for (arm, _), run in zip(jobs, runs, strict=True):
        found.setdefault(arm, []).append(run)
    return found


def of_arm(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return what is written of an arm: means, intervals, and the staleness of all its trained turns."""
    histogram: Counter[str] = Counter()
    for run in runs:
        histogram.update(run["staleness_histogram"])
    return {
        "series": arm.series,
        "name": arm.name,
        "value": arm.value,
        "figures": {name: over(name, runs) for name in MEANS},
        "staleness_max": max(run["staleness_max"] for run in runs),
        "staleness_histogram": dict(sorted(histogram.items(), key=lambda item: int(item[0]))),
        "bound_by": runs[0]["bound_by"],
        "run": {
            "preset": arm.preset,
            "workload": arm.workload,
            "hours": arm.hours,
            "changes": list(arm.changes),
            "event_hashes": [run["event_hash"] for run in runs],
        },
    }


def over(name: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return mean and 95 % half-width over runs; neither where some run has no such figure."""
    values = [run[name] for run in runs]
    if any(value is None for value in values):
        return {"mean": None, "half_width": None}
    return {"mean": fmean(values), "half_width": half_width(values)}
