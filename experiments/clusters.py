"""Simulated clusters for experiments: a preset with changes, run for its figures alone, on all cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import track

from dartsim.config import Config, load
from dartsim.real.machine import usable_cores
from dartsim.real.processes import process_pool
from dartsim.run.models import models
from dartsim.run.simulation import run_simulation

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A run to make: a preset, its seed, its simulated hours, and changes as ``--set`` takes them."""

    preset: str
    hours: float
    seed: int = 0
    changes: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The resolved configuration, without timelines and without a database."""
        own = (
            f"run.hours={self.hours}",
            f"run.seed={self.seed}",
            "recorder.max_segments=0",
            'curation.store="memory"',
        )
        return load(preset_name=self.preset, overrides=[*self.changes, *own])


def run_cluster(cluster: Cluster) -> Figures:
    """Run one and return its figures, with its event hash."""
    result = run_simulation(models(cluster.config))
    return {**result.figures, "event_hash": result.event_hash}


def run_clusters(clusters: Sequence[Cluster], console: Console, what: str) -> list[Figures]:
    """Run all on all cores, the results in the order asked for."""
    processes = min(len(clusters), usable_cores())
    with process_pool(processes) as pool:
        done = pool.map(run_cluster, clusters)
        return list(track(done, what, total=len(clusters), console=console, disable=not console.is_terminal))


def mean_figures(runs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Figures:
    """Return the mean over runs of the named figures; of those that end in ``_max``, the largest."""
    combine = {name: max if name.endswith("_max") else mean for name in names}
    return {name: combine[name]([run[name] for run in runs]) for name in names}
