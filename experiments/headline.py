"""DART and its coupled baseline: the published efficiency table beside ours, and what else the parameters predict.

python -m experiments.headline            three seeds, 24 simulated hours each: about three minutes on two cores
python -m experiments.headline --quick    the same keys in less than one
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.clusters import Cluster, mean_figures, run_clusters
from experiments.common import Options, run_experiment
from experiments.other_runs import PRESET, other_runs

FIGURES = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "gpu_utilization_rollout_phase",
    "trajectories_per_minute",
    "minutes_per_version",
)

PUBLISHED: dict[str, dict[str, float | None]] = {
    "dart": {
        "trained_turns_per_minute": 43.6,
        "generated_turns_per_minute": 188.0,
        "env_utilization": 0.677,
        "gpu_utilization": 0.467,
        "trajectories_per_minute": 13.16,
        "minutes_per_version": 21.2,
        "gpu_utilization_rollout_phase": None,
        "max_staleness": None,
    },
    "coupled": {
        "trained_turns_per_minute": 22.6,
        "env_utilization": 0.122,
        "gpu_utilization": 0.296,
        "minutes_per_version": 40.4,
        "generated_turns_per_minute": None,
        "trajectories_per_minute": None,
        "gpu_utilization_rollout_phase": None,
        "max_staleness": None,
    },
}
"""Published (DART's project page: turns, utilizations) and counted or derived from its run history (the rest)."""

PRESETS = {"dart": PRESET, "coupled": "coupled"}
"""What is run for each. The preset ``dart`` has the paper's curation on, and so other numbers of attempts and turns
than the run whose efficiency was measured, which made 8 attempts of at most 30 turns at every task."""


PUBLISHED_GPU = 0.296
"""GPU utilization of the coupled baseline as published."""


def measure(options: Options) -> dict[str, Any]:
    """Run both presets over the seeds, and the other runs."""
    hours, other_hours = (6.0, 2.0) if options.quick else (24.0, 12.0)
    seeds = range(options.seeds)
    clusters = [Cluster(preset, hours, seed) for preset in PRESETS.values() for seed in seeds]
    runs = run_clusters(clusters, options.console, "dart and coupled")
    by_name = {
        name: [run for cluster, run in zip(clusters, runs, strict=True) if cluster.preset == preset]
        for name, preset in PRESETS.items()
    }
    found = {
        name: {
            **mean_figures(own, FIGURES),
            "max_staleness": max(run["staleness_max"] for run in own),
            "event_hashes": [run["event_hash"] for run in own],
        }
        for name, own in by_name.items()
    }
    return {
        **found,
        "published": PUBLISHED,
        "errors": {
            name: {n: found[name][n] / known - 1.0 for n, known in figures.items() if known is not None}
            for name, figures in PUBLISHED.items()
        },
        "gpu_definitions": gpu_definitions(by_name["coupled"]),
        "other_runs": other_runs(other_hours, options.console),
        "other_runs_config": {"preset": PRESET, "seeds": [0], "hours": other_hours},
        "config": {name: Cluster(preset, hours).config.model_dump(mode="json") for name, preset in PRESETS.items()},
    }


def gpu_definitions(coupled: list[dict[str, Any]]) -> dict[str, float]:
    """Return the baseline's GPU utilization under every definition that could be meant by the published 29.6 %.

    ``all_time`` and ``rollout_phase`` are for dedicated rollout GPUs. On hybrid GPUs, which train as well,
    ``hybrid_training_counts_full`` counts an update as busy throughout; ``training_share_that_meets_published`` is the
    share of an update that would have to count for the published figure: a fit, not a prediction.
    """
    runs = mean_figures(coupled, ("gpu_utilization", "gpu_utilization_rollout_phase", "gpu_peak_share"))
    training = sum(run["trainer_shares"]["training"] for run in coupled) / len(coupled)
    return {
        "all_time": runs["gpu_utilization"],
        "rollout_phase": runs["gpu_utilization_rollout_phase"],
        "share_of_peak_token_rate": runs["gpu_peak_share"],
        "hybrid_training_counts_full": runs["gpu_utilization"] + training,
        "training_share_that_meets_published": (PUBLISHED_GPU - runs["gpu_utilization"]) / training,
    }


def show(figures: dict[str, Any], console: Console) -> None:
    """Print the figures beside the published ones."""
    table = Table("", *(f"{p} {c}" for p in PUBLISHED for c in ("published", "here", "error")), show_edge=False)
    for name in FIGURES:
        row: list[str] = [name]
        for preset, published in PUBLISHED.items():
            known, ours = published.get(name), figures[preset][name]
            row += (
                ["–", f"{ours:.3g}", "–"]
                if known is None
                else [f"{known:g}", f"{ours:.3g}", f"{ours / known - 1:+.1%}"]
            )
        table.add_row(*row)
    console.print(table)
    definitions = Table("GPU utilization of the coupled baseline (published: 29.6 %)", "", show_edge=False)
    for name, value in figures["gpu_definitions"].items():
        definitions.add_row(name, f"{value:.1%}")
    console.print(definitions)
    others = Table("other runs", "figure", "kind", "known", "predicted", "error", show_edge=False)
    for entry in figures["other_runs"]:
        others.add_row(
            entry["name"],
            entry["figure"],
            entry["kind"],
            f"{entry['measured']:.3g}",
            f"{entry['predicted']:.3g}",
            f"{entry['error']:+.0%}",
        )
    console.print(others)


if __name__ == "__main__":
    run_experiment("headline", measure, show, about=__doc__.splitlines()[0])
