"""Tables of README.md and docs/experiments.md: DART's published figures beside ours, and what else was predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from experiments.common import Figures
from experiments.markdown import from_record, short_commit, table

LABELS = {
    "trained_turns_per_minute": ("trained turns/min", 1.0, ".1f"),
    "generated_turns_per_minute": ("generated turns/min", 1.0, ".1f"),
    "env_utilization": ("environment utilization, %", 100.0, ".1f"),
    "gpu_utilization": ("GPU utilization (rollout), %", 100.0, ".1f"),
    "trajectories_per_minute": ("trajectories/min", 1.0, ".2f"),
    "minutes_per_version": ("minutes per version", 1.0, ".1f"),
}


def efficiency(figures: Figures) -> str:
    """The paper's three figures, coupled against DART, published and simulated."""
    rows = []
    for name in ("trained_turns_per_minute", "env_utilization", "gpu_utilization"):
        label, scale, form = LABELS[name]
        row = [label]
        for source in (figures["published"], figures):
            coupled, dart = source["coupled"][name], source["dart"][name]
            row += [f"{coupled * scale:{form}}", f"{dart * scale:{form}}", f"{dart / coupled:.2f}x"]
        rows.append(row)
    head = ["", "coupled, published", "DART, published", "ratio", "coupled, here", "DART, here", "ratio"]
    return table(head, rows)


def headline(figures: Figures) -> str:
    """Every published figure beside ours."""
    rows = []
    for name, (label, scale, form) in LABELS.items():
        row = [label]
        for preset in ("dart", "coupled"):
            known, ours = figures["published"][preset].get(name), figures[preset][name]
            if known is None:
                row += ["–", f"{ours * scale:{form}}", "–"]
            else:
                row += [f"{known * scale:{form}}", f"{ours * scale:{form}}", f"{ours / known - 1:+.1%}"]
        rows.append(row)
    return table(["", "DART, published", "here", "error", "coupled, published", "here", "error"], rows)


def gpu_definitions(figures: Figures) -> str:
    """The baseline's GPU utilization under each possible definition."""
    words = {
        "all_time": "dedicated rollout GPUs, all the time",
        "rollout_phase": "dedicated rollout GPUs, while attempts run",
        "share_of_peak_token_rate": "dedicated rollout GPUs, share of the peak token rate",
        "hybrid_training_counts_full": "hybrid GPUs, an update counted as busy throughout",
        "training_share_that_meets_published": "share of an update that would have to count for 29.6 %, on hybrid GPUs",
    }
    definitions = figures["gpu_definitions"]
    return table(["definition", "value"], [[text, f"{definitions[name]:.1%}"] for name, text in words.items()])


def other_runs(figures: Figures, kind: str) -> str:
    """Figures of other runs, predicted by the same parameters.

    Args:
        figures: Those of the headline.
        kind: ``measured``; ``fitted``, which the parameters were chosen by; ``prototype``, of an independent earlier
            model.
    """
    rows = [
        [
            entry["name"],
            entry["figure"].replace("_", " "),
            f"{entry['measured']:.3g}",
            f"{entry['predicted']:.3g}",
            f"{entry['error']:+.0%}",
        ]
        for entry in figures["other_runs"]
        if entry["kind"] == kind
    ]
    return table(["run", "figure", kind, "predicted", "error"], rows)


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


def presets(figures: Figures) -> str:
    """The three presets of DART, with a surrogate policy."""
    by_preset = figures["presets"]
    more = {"turns_per_trajectory": ("turns of a trajectory", 1.0, ".1f")}
    rows = [
        [label, *(f"{found[name] * scale:{form}}" for found in by_preset.values())]
        for name, (label, scale, form) in (LABELS | more).items()
        if name in next(iter(by_preset.values()))
    ]
    return table(["", *(f"`{preset}`" for preset in by_preset)], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "efficiency": from_record("headline", efficiency),
    "headline": from_record("headline", headline),
    "gpu-definitions": from_record("headline", gpu_definitions),
    "measured-runs": from_record("headline", partial(other_runs, kind="measured")),
    "fitted-runs": from_record("headline", partial(other_runs, kind="fitted")),
    "prototype-runs": from_record("headline", partial(other_runs, kind="prototype")),
    "provenance": from_record("headline", provenance),
    "presets": from_record("presets", presets),
}
"""The tables, by their names on the pages."""
