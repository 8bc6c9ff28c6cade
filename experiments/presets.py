"""The three presets of DART on one cluster: what the paper's curation costs in efficiency, with a surrogate policy.

python -m experiments.presets            three seeds, 24 simulated hours each: about two minutes on two cores
python -m experiments.presets --quick    the same keys in half a minute
"""

from __future__ import annotations

from typing import Any

from experiments.clusters import Cluster, mean_figures, run_clusters
from experiments.headline import LABELS
from experiments.study import Experiment, Figures, Options, Rows, cell

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
    runs = run_clusters(clusters, options, "presets")
    found: dict[str, Any] = {}
    for preset in PRESETS:
        own = [run for cluster, run in zip(clusters, runs, strict=True) if cluster.preset == preset]
        found[preset] = {**mean_figures(own, FIGURES), "event_hashes": [run["event_hash"] for run in own]}
    return {
        "presets": found,
        "config": {preset: Cluster(preset, hours).config.model_dump(mode="json") for preset in PRESETS},
    }


def presets_table(figures: Figures) -> Rows:
    """The three presets of DART, with a surrogate policy."""
    by_preset = figures["presets"]
    rows = [
        [label, *(cell(f"{{{name}:{form}}}", own) for own in by_preset.values())]
        for name, (label, form) in (LABELS | {"turns_per_trajectory": ("turns of a trajectory", ".1f")}).items()
        if name in FIGURES
    ]
    return ["", *(f"`{preset}`" for preset in by_preset)], rows


STUDY = Experiment(name="presets", about=str(__doc__), measure=measure, tables={"presets": presets_table})

if __name__ == "__main__":
    STUDY.run()
