"""Simulated clusters for experiments: a preset with changes, run for its figures alone, on all cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from dartsim.config import Config, load
from dartsim.lab.jobs import steady_turns_per_minute
from dartsim.lab.sweep import ArmRun
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments.study import Figures, Options


@dataclass(frozen=True, slots=True)
class Cluster:
    """A run to make: a preset, its seed, its simulated hours, changes as ``--set`` takes them, and a workload."""

    preset: str
    hours: float
    seed: int = 0
    changes: tuple[str, ...] = ()
    workload: str | None = None

    @property
    def config(self) -> Config:
        """The resolved configuration, without timelines and without a database."""
        own = (
            f"run.hours={self.hours}",
            f"run.seed={self.seed}",
            "recorder.max_segments=0",
            'curation.store="memory"',
        )
        return load(preset_name=self.preset, workload_name=self.workload, overrides=[*self.changes, *own])


def run_cluster(cluster: Cluster) -> Figures:
    """Run one and return its figures, with its trained turns from update to update and its event hash."""
    result = run_simulation(prepare(cluster.config))
    steady = steady_turns_per_minute(list(result.recorder.updates), result.figures["warmup_hours"] * 3600.0)
    return {**result.figures, "steady_turns_per_minute": steady, "event_hash": result.event_hash}


def run_clusters(clusters: Sequence[Cluster], options: Options, what: str) -> list[Figures]:
    """Run all and return their figures in order."""
    return options.sweep(run_cluster, [ArmRun(cluster.preset, cluster.seed, cluster) for cluster in clusters], what)


def mean_figures(runs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Figures:
    """Return the mean over runs of the named figures; of those that end in ``_max``, the largest."""
    combine = {name: max if name.endswith("_max") else mean for name in names}
    return {name: combine[name]([run[name] for run in runs]) for name in names}
