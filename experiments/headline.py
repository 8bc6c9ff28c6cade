"""DART and its coupled baseline: the published efficiency table beside ours, and what else the parameters predict.

python -m experiments.headline            three seeds, 24 simulated hours each: about three minutes on two cores
python -m experiments.headline --quick    the same keys in less than one
"""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.clusters import Cluster, mean_figures, run_clusters
from experiments.other_runs import PRESET, other_runs
from experiments.study import Experiment, Figures, Options, Rows, cell, rows_of, short_commit

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
    runs = run_clusters(clusters, options, "dart and coupled")
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
        "other_runs": other_runs(other_hours, options),
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


LABELS = {
    "trained_turns_per_minute": ("trained turns/min", ".1f"),
    "generated_turns_per_minute": ("generated turns/min", ".1f"),
    "env_utilization": ("environment utilization, %", ".1p"),
    "gpu_utilization": ("GPU utilization (rollout), %", ".1p"),
    "trajectories_per_minute": ("trajectories/min", ".2f"),
    "minutes_per_version": ("minutes per version", ".1f"),
}


def efficiency(figures: Figures) -> Rows:
    """The paper's three figures, coupled against DART, published and simulated."""
    rows = []
    for name in ("trained_turns_per_minute", "env_utilization", "gpu_utilization"):
        label, form = LABELS[name]
        row = [label]
        for source in (figures["published"], figures):
            coupled, dart = source["coupled"][name], source["dart"][name]
            pattern = f"{{coupled:{form}}}|{{dart:{form}}}|{{ratio:.2f}}x"
            row += cell(pattern, {"coupled": coupled, "dart": dart, "ratio": dart / coupled}).split("|")
        rows.append(row)
    head = ["", "coupled, published", "DART, published", "ratio", "coupled, here", "DART, here", "ratio"]
    return head, rows


def headline_table(figures: Figures) -> Rows:
    """Every published figure and ours."""
    rows = []
    for name, (label, form) in LABELS.items():
        row = [label]
        for preset in ("dart", "coupled"):
            known, ours = figures["published"][preset].get(name), figures[preset][name]
            values = {"known": known, "ours": ours, "error": known and ours / known - 1}
            row += [cell(pattern, values) for pattern in (f"{{known:{form}}}", f"{{ours:{form}}}", "{error:+.1%}")]
        rows.append(row)
    return ["", "DART, published", "here", "error", "coupled, published", "here", "error"], rows


def gpu_definitions_table(figures: Figures) -> Rows:
    """The baseline's GPU utilization under each possible definition."""
    definitions = {
        "dedicated rollout GPUs, all the time": "all_time",
        "dedicated rollout GPUs, while attempts run": "rollout_phase",
        "dedicated rollout GPUs, share of the peak token rate": "share_of_peak_token_rate",
        "hybrid GPUs, an update counted as busy throughout": "hybrid_training_counts_full",
        "share of an update that would have to count for 29.6 %, on hybrid GPUs": "training_share_that_meets_published",
    }
    values = figures["gpu_definitions"]
    return ["definition", "value"], [[text, f"{values[name]:.1%}"] for text, name in definitions.items()]


def other_runs_table(figures: Figures, kind: str) -> Rows:
    """Figures of other runs, ``measured`` or ``fitted``, predicted by the same parameters."""
    columns = {
        "run": "{name}",
        "figure": "{figure}",
        kind: "{measured:.3g}",
        "predicted": "{predicted:.3g}",
        "error": "{error:+.0%}",
    }
    own = (entry for entry in figures["other_runs"] if entry["kind"] == kind)
    return rows_of(columns, ({**entry, "figure": entry["figure"].replace("_", " ")} for entry in own))


def provenance(figures: Figures) -> str:
    """What the recorded headline was run with."""
    commit, versions = figures["commit"], figures["versions"]
    seeds = ", ".join(str(seed) for seed in figures["seeds"])
    packages = ", ".join(f"{name} {versions[name]}" for name in ("simpy", "numpy") if name in versions)
    return (
        f"Recorded with seeds {seeds}, {figures['config']['dart']['run']['hours']:g} simulated hours each, at commit "
        f"{short_commit(figures)}{' with changes' if commit['dirty'] else ''}, "
        f"{figures['machine']['python']}, {packages}.\n"
    )


STUDY = Experiment(
    name="headline",
    about=str(__doc__),
    measure=measure,
    tables={
        "efficiency": efficiency,
        "headline": headline_table,
        "gpu-definitions": gpu_definitions_table,
        "measured-runs": partial(other_runs_table, kind="measured"),
        "fitted-runs": partial(other_runs_table, kind="fitted"),
        "provenance": provenance,
    },
)

if __name__ == "__main__":
    STUDY.run()
