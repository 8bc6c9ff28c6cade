"""The figures of docs/schedulers.md, from those of ``experiments.schedulers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.charts import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    boxes,
    drawing,
    label_axes,
    legend_below,
    rows_axis,
)
from experiments.study import Figures, StudyPicture

TRAINED, OURS = "trained_turns_per_minute", "dartsim"

SHADES = [(step / 10, 0.02 + 0.006 * step**2) for step in range(1, 11)]
"""From which share of the best, and how opaque its cell is."""


@drawing(5.4)
def ladder(figure: Any, schedulers: Figures) -> None:
    """Throughput and staleness of every scheduler on osworld; throughput on all workloads as a map."""
    workloads = schedulers["workloads"]
    found = workloads["osworld"]["schedulers"]
    names = sorted(found, key=lambda name: -found[name]["figures"][TRAINED]["mean"])
    speed, staleness, every = figure.subplots(1, 3, width_ratios=(2.2, 1.3, 2.9))
    for color, rows in ((ORANGE, [names.index(OURS)]), (BLUE, [i for i, name in enumerate(names) if name != OURS])):
        turns, mean, most = (
            [found[names[row]]["figures"][key] for row in rows] for key in (TRAINED, "staleness_mean", "staleness_max")
        )
        means = [one["mean"] for one in mean]
        longer = [[0.0] * len(rows), [one["mean"] - low for one, low in zip(most, means, strict=True)]]
        widths = [one["half_width"] or 0.0 for one in turns]
        speed.errorbar([one["mean"] for one in turns], rows, xerr=widths, color=color, marker="o", ls="")
        staleness.errorbar(means, rows, xerr=longer, color=color, marker="o", ls="", capsize=2)
    bound = found[OURS]["figures"]["bound_trained_turns_per_minute"]["mean"]
    speed.axvline(bound, color=GRAY, linestyle=":")
    speed.annotate("bound", (bound, len(names) - 1), (-3, 0), textcoords="offset points", ha="right", va="center")
    for axes in (speed, staleness, every):
        rows_axis(axes, names if axes is speed else [""] * len(names))
    speed.set_xlim(left=0.0)
    label_axes(speed, "osworld: throughput", "trained turns per minute", zero=False)
    label_axes(staleness, "osworld: staleness", "versions: mean, largest", zero=False)
    every.grid(visible=False)
    every.set_xlim(-0.5, len(workloads) - 0.5)
    every.set_xticks(range(len(workloads)), list(workloads), rotation=25)
    label_axes(every, "all workloads: trained turns per minute", "shade: share of the best in the column", zero=False)
    for column, own in enumerate(workloads.values()):
        by_name = {name: own["schedulers"][name]["figures"][TRAINED]["mean"] for name in names}
        best = max(by_name.values())
        for row, name in enumerate(names):
            every.text(column, row, f"{by_name[name]:.0f}", ha="center", va="center")
        for low, opacity in SHADES:
            cells = [
                (column - 0.5, row - 0.5, 1.0, 1.0)
                for row, name in enumerate(names)
                if low <= by_name[name] / best < low + 0.1
            ]
            boxes(every, cells, BLUE, alpha=opacity)


@drawing(2.7)
def bounds(figure: Any, schedulers: Figures) -> None:
    """Ours against the best other scheduler and the bound, and scheduling alone at equal staleness bounds."""
    workloads = schedulers["workloads"]
    names = list(workloads)
    whole, bounded = figure.subplots(1, 2, sharey=True)
    for row, own in enumerate(workloads.values()):
        ours = own["schedulers"]["dartsim"]["figures"]
        limit = ours["bound_trained_turns_per_minute"]["mean"] / 100.0
        points = {
            "dartsim": (ORANGE, "o", ours),
            "dartsim, scheduling alone": (GREEN, "^", own["alone"]["figures"]),
            "best other preset": (BLUE, "s", own["schedulers"][own["best_other"]]["figures"]),
        }
        for place, (words, (color, marker, figures)) in enumerate(points.items()):
            turns = figures[TRAINED]
            at = row + 0.22 * (place - 1)
            label = None if row else words
            errors = [(turns["half_width"] or 0.0) / limit]
            whole.errorbar([turns["mean"] / limit], [at], xerr=errors, color=color, marker=marker, ls="", label=label)
        for place, at_bound in enumerate(own["at_bounds"]):
            color, marker = ((PURPLE, "v"), (RED, "D"), (GREEN, "^"))[place]
            ratio, at = at_bound["ours_over_best_other"], row + 0.22 * (place - 1)
            label = None if row else f"at a staleness bound of {at_bound['bound']}"
            bounded.plot([100.0 * ratio], [at], color=color, marker=marker, ls="", label=label)
    for axes in (whole, bounded):
        rows_axis(axes, names)
        axes.axvline(100.0, color=GRAY, linestyle=":")
    label_axes(whole, "Trained turns per minute, of the bound", "% of the bound (dotted)", zero=False)
    label_axes(bounded, "Scheduling alone, of the best other preset", "% of the best within the bound", zero=False)
    legend_below(figure, 3)


@drawing(3.2)
def ideas(figure: Any, schedulers: Figures) -> None:
    """Trained and generated turns of our preset with one idea removed or changed."""
    names = [row["idea"] for row in schedulers["ideas"] if row["workload"] == "dart" and row["idea"] != "all ideas"]
    whole = {row["workload"]: row["figures"] for row in schedulers["ideas"] if row["idea"] == "all ideas"}
    panels = {
        TRAINED: "Trained turns",
        "generated_turns_per_minute": "Generated turns",
        "gpu_utilization": "Rollout GPUs busy",
    }
    for axes, (key, title) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
        for place, workload in enumerate(whole):
            color, marker = ((BLUE, "s"), (ORANGE, "o"))[place]
            found = {row["idea"]: row["figures"] for row in schedulers["ideas"] if row["workload"] == workload}
            base = whole[workload][key]["mean"]
            changes = [100.0 * (found[name][key]["mean"] / base - 1.0) for name in names]
            rows_at = [row + 0.25 * (place - 0.5) for row in range(len(names))]
            axes.plot(changes, rows_at, color=color, marker=marker, ls="", label=f"workload {workload}")
        rows_axis(axes, names)
        axes.axvline(0.0, color=GRAY, linestyle=":")
        label_axes(axes, title, "change, %", zero=False)
    legend_below(figure, 2)


PICTURES: Mapping[str, StudyPicture] = {
    "schedulers-ladder": StudyPicture(
        "Trained turns per minute and staleness of 25 schedulers: dartsim trains the most turns on osworld", ladder
    ),
    "schedulers-bounds": StudyPicture(
        "dartsim against the bound and the best other scheduler on six workloads, and at equal staleness bounds", bounds
    ),
    "schedulers-ideas": StudyPicture(
        "Change in trained turns, generated turns and GPU time if one idea of dartsim is removed or changed", ideas
    ),
}
"""By the names of their files."""
