"""The figures of the ablation on docs/learning.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.charts import (
    BLUE,
    COLORS,
    GRAY,
    GREEN,
    MARKERS,
    MUTED,
    ORANGE,
    drawing,
    label_axes,
    legend_below,
    rows_axis,
)
from experiments.study import Figures, StudyPicture, interval

CURVES = ("coupled", "decoupled", "+ pool", "dart", "dart - entropy", "dart, stored kept")
"""Arms whose learning curves are drawn."""
KINDS: Mapping[str, tuple[str, str]] = {"easy": (BLUE, "o"), "hard": (GREEN, "^"), "never": (ORANGE, "s")}

PUBLISHED_ROWS = {
    "attempts": ("baseline", "+ dynamic rollouts"),
    "length": ("+ dynamic rollouts", "+ dynamic length"),
    "entropy": ("+ dynamic length", "+ high entropy"),
    "alignment": ("+ high entropy", "+ distribution alignment"),
    "pool": ("+ distribution alignment", "all"),
}
"""Part -> the row before it and its own; the last row's gain can only be the pool's."""


def final(runs: Sequence[Figures]) -> list[float]:
    """Return the final success of runs, percent."""
    return [100.0 * run["success_rate_final"] for run in runs]


def of_arm(figures: Figures, arm: str) -> list[Figures]:
    """Return the runs of an arm, by seed."""
    return [run for run in figures["arms"] if run["arm"] == arm]


def arm_names(figures: Figures) -> list[str]:
    """Return the names of all arms, in their order."""
    return list(dict.fromkeys(run["arm"] for run in figures["arms"]))


@drawing(3.6)
def arms(figure: Any, ablation: Figures) -> None:
    """Final success of every arm, over all tasks and by kind of task."""
    names = arm_names(ablation)
    whole, by_kind = figure.subplots(1, 2, sharey=True)
    for row, name in enumerate(names):
        runs = of_arm(ablation, name)
        mean, half = interval(final(runs))
        color = ORANGE if name.startswith("dart") else GRAY if name in ("coupled", "decoupled") else BLUE
        whole.barh([row], [mean], 0.7, xerr=[half], color=color, ecolor=MUTED)
        for place, (kind, (shade, marker)) in enumerate(KINDS.items()):
            mean, half = interval([100.0 * run["by_kind_final"][kind] for run in runs])
            label = None if row else f"{'never solved' if kind == 'never' else kind} by the base model"
            at = row + 0.22 * (place - 1)
            by_kind.errorbar([mean], [at], xerr=[half], color=shade, marker=marker, ls="", label=label)
    for axes, title in ((whole, "Success on held-out tasks"), (by_kind, "by kind of task")):
        rows_axis(axes, names)
        axes.set_xlim(0.0, 100.0)
        label_axes(axes, title, "% after 0.4 simulated hours", zero=False)
    legend_below(figure, 3)


@drawing(2.6, 6.5)
def parts(figure: Any, ablation: Figures) -> None:
    """What each part adds: in the paper, added to the baseline here, and removed from the whole here."""
    axes = figure.subplots()
    success = {arm: final(of_arm(ablation, arm)) for arm in arm_names(ablation)}
    for row, (part, (before, after)) in enumerate(PUBLISHED_ROWS.items()):
        found = {
            "paper: over the row before": (100.0 * (ablation["published"][after] - ablation["published"][before]), 0.0),
            "here: added to decoupled": difference(success[f"+ {part}"], success["decoupled"]),
            "here: dart over dart without it": difference(success["dart"], success[f"dart - {part}"]),
        }
        for place, (words, (mean, half)) in enumerate(found.items()):
            at, label = row + 0.22 * (place - 1), None if row else words
            color, marker = (GRAY, BLUE, ORANGE)[place], "Dos"[place]
            axes.errorbar([mean], [at], xerr=[half] if half else None, color=color, marker=marker, ls="", label=label)
    rows_axis(axes, list(PUBLISHED_ROWS))
    axes.axvline(0.0, color=GRAY, linestyle=":")
    label_axes(axes, "Gain of each part", "percentage points of success", zero=False)
    legend_below(figure, 3)


def difference(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the mean difference, seed by seed, and the half-width of its 95 % interval."""
    return interval([a - b for a, b in zip(ours, others, strict=True)])


@drawing(3.0)
def curves(figure: Any, ablation: Figures) -> None:
    """Success over simulated hours and over generated turns, with 95 % bands, as far as all seeds got."""
    columns = {"simulated_hours": ("by time", "simulated hours"), "turns": ("by samples", "generated turns")}
    for axes, (column, (title, words)) in zip(figure.subplots(1, 2, sharey=True), columns.items(), strict=True):
        for number, arm in enumerate(CURVES):
            known = [run["curve"] for run in of_arm(ablation, arm)]
            points = np.linspace(0.0, min(curve[column][-1] for curve in known), 25)
            table = np.array([np.interp(points, curve[column], curve["success_rate"]) for curve in known])
            means, halves = np.array([interval(column_of) for column_of in table.T.tolist()]).T * 100.0
            axes.fill_between(points, means - halves, means + halves, color=COLORS[number], alpha=0.13, linewidth=0)
            axes.plot(points, means, color=COLORS[number], marker=MARKERS[number], markevery=6, label=arm)
        label_axes(axes, f"Success {title}", words, "%" if column == "simulated_hours" else "")
    legend_below(figure, 6)


@drawing(2.7)
def staleness(figure: Any, ablation: Figures) -> None:
    """Success and effective sample size by staleness bound, with and without importance sampling."""
    end, samples, effective = figure.subplots(1, 3)
    series = (("with importance sampling", "staleness"), ("without", "staleness_without_alignment"))
    for number, (words, key) in enumerate(series):
        bounds = sorted({run["bound"] for run in ablation[key]})
        runs = [[run for run in ablation[key] if run["bound"] == bound] for bound in bounds]
        early = [[100.0 * float(np.interp(5_000, one["curve"]["turns"], one["curve"]["success_rate"])) for one in own]
                 for own in runs]  # fmt: skip
        shares = [[100.0 * one["importance"]["raw_effective_sample_share"] for one in own
                   if "raw_effective_sample_share" in one["importance"]] for own in runs]  # fmt: skip
        for axes, values in ((end, [final(own) for own in runs]), (samples, early), (effective, shares)):
            if all(values):
                means, halves = zip(*(interval(own) for own in values), strict=True)
                color, marker = COLORS[number], MARKERS[number]
                axes.errorbar(bounds, means, halves, color=color, marker=marker, capsize=2, label=words)
    label_axes(end, "Success after 0.4 hours", "staleness bound, versions", "%")
    label_axes(samples, "Success after 5,000 turns", "staleness bound, versions", "%")
    label_axes(effective, "Effective sample size", "staleness bound, versions", "% of the samples")
    legend_below(figure, 2)


PICTURES: Mapping[str, StudyPicture] = {
    "ablation-success": StudyPicture(
        "Success of every arm of the ablation with 95 % intervals: dart without entropy selection and dart with stored "
        "successes kept learn most, mainly on never-solved tasks",
        arms,
    ),
    "ablation-parts": StudyPicture(
        "Gain of each part of the method in the paper and here: the paper gains most from attempts and length, we gain "
        "from the pool and lose by entropy selection",
        parts,
    ),
    "ablation-curves": StudyPicture(
        "Learning curves with 95 % bands over simulated hours and generated turns: coupled is slower by time only",
        curves,
    ),
    "ablation-staleness": StudyPicture(
        "Success and effective sample size by staleness bound: without importance sampling success is about half",
        staleness,
    ),
}
