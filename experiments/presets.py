"""The three presets of DART on one cluster: what the paper's curation costs in efficiency, with a surrogate policy.

python -m experiments.presets            three seeds, 24 simulated hours each: about two minutes on two cores
python -m experiments.presets --quick    the same keys in half a minute
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.clusters import Cluster, mean_figures, run_clusters
from experiments.common import Options, run_experiment

PRESETS = ("dart-measured", "dart", "dart-released")

FIGURES = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "turns_per_trajectory",
    "minutes_per_version",
)


def measure(options: Options) -> dict[str, Any]:
    """Run the presets over the seeds."""
    hours = 6.0 if options.quick else 24.0
    clusters = [Cluster(preset, hours, seed) for preset in PRESETS for seed in range(options.seeds)]
    runs = run_clusters(clusters, options.console, "presets")
    found: dict[str, Any] = {}
    for preset in PRESETS:
        own = [run for cluster, run in zip(clusters, runs, strict=True) if cluster.preset == preset]
        found[preset] = {**mean_figures(own, FIGURES), "event_hashes": [run["event_hash"] for run in own]}
    return {
        "presets": found,
        "config": {preset: Cluster(preset, hours).config.model_dump(mode="json") for preset in PRESETS},
    }


def show(figures: dict[str, Any], console: Console) -> None:
    """Print one column a preset."""
    table = Table("", *PRESETS, show_edge=False)
    for name in FIGURES:
        table.add_row(name, *(f"{figures['presets'][preset][name]:.3g}" for preset in PRESETS))
    console.print(table)


if __name__ == "__main__":
    run_experiment("presets", measure, show, about=str(__doc__).splitlines()[0])
