"""The pictures of the ablation on docs/learning.md."""

from __future__ import annotations

from collections.abc import Mapping
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
    PURPLE,
    drawing,
    label_axes,
    legend_below,
    rows_axis,
)
from experiments.learning_study import COLUMNS, arm_names, draw_curves, of_arm, paired
from experiments.study import Figures, StudyPicture, interval

CURVES = ("coupled", "decoupled", "dart", "dart - entropy", "dart, stored kept", "dart - entropy, by state")
"""Arms whose learning curves are drawn."""

KIND_STYLES: Mapping[str, tuple[str, str]] = {"easy": (BLUE, "o"), "hard": (GREEN, "^"), "never": (ORANGE, "s")}

PUBLISHED_ROWS = {
    "attempts": ("baseline", "+ dynamic rollouts", "decoupled", "+ attempts"),
    "length": ("+ dynamic rollouts", "+ dynamic length", "+ attempts", "… + length"),
    "entropy": ("+ dynamic length", "+ high entropy", "… + length", "… + entropy"),
    "alignment": ("+ high entropy", "+ distribution alignment", "… + entropy", "dart - pool"),
    "pool": ("+ distribution alignment", "all", "dart - pool", "dart"),
}
"""Part -> the paper's row before it and its own, and our arms; the last row's gain can only be the pool's."""


@drawing(4.0)
def arms(figure: Any, ablation: Figures) -> None:
    """Final success of every arm, over all tasks and by kind of task."""
    runs = ablation["arms"]
    names = arm_names(runs)
    whole, by_kind = figure.subplots(1, 2, sharey=True)
    for row, name in enumerate(names):
        own = of_arm(runs, name)
        mean, half = interval(_percents(run["success_rate_final"] for run in own))
        color = ORANGE if name.startswith("dart") else GRAY if name.endswith("coupled") else BLUE
        whole.barh([row], [mean], 0.7, xerr=[half], color=color, ecolor=MUTED)
        for place, (kind, (shade, marker)) in enumerate(KIND_STYLES.items()):
            known = _percents(run["by_kind_final"][kind] for run in own if kind in run["by_kind_final"])
            if known:
                mean, half = interval(known)
                label = None if row else f"{'never solved' if kind == 'never' else kind} by the base model"
                at = row + 0.22 * (place - 1)
                by_kind.errorbar([mean], [at], xerr=[half], color=shade, marker=marker, ls="", label=label)
    hours = ablation["config"]["dart"]["run"]["hours"]
    for axes, title in ((whole, "Success on held-out tasks"), (by_kind, "by kind of task")):
        rows_axis(axes, names)
        axes.set_xlim(0.0, 100.0)
        label_axes(axes, title, f"% after {hours:g} simulated hours", zero=False)
    legend_below(figure, 3)


def _percents(shares: Any) -> list[float]:
    return [100.0 * share for share in shares]


@drawing(3.2, 7.5)
def parts(figure: Any, long: Figures, locks: Figures) -> None:
    """What each part adds: in the paper, on long tasks and on short ones."""
    axes, named = figure.subplots(), set[str]()
    for row, (part, (before, after, arm_before, arm)) in enumerate(PUBLISHED_ROWS.items()):
        published = long["published"][after] - long["published"][before]
        series = (
            ("paper: added to the row before", GRAY, "D", {"mean": published, "half_width": None}),
            ("long tasks: added to the row before", BLUE, "o", _gain(long, arm, arm_before)),
            ("long tasks: dart over dart without it", ORANGE, "s", _gain(long, "dart", f"dart - {part}")),
            ("short tasks: dart over dart without it", PURPLE, "^", _gain(locks, "dart", f"dart - {part}")),
        )
        for place, (words, color, marker, found) in enumerate(series):
            if found["mean"] is not None:
                half = [100.0 * found["half_width"]] if found["half_width"] is not None else None
                at, label = row + 0.2 * (place - 1.5), None if words in named else words
                named.add(words)
                axes.errorbar([100.0 * found["mean"]], [at], xerr=half, color=color, marker=marker, ls="", label=label)
    rows_axis(axes, list(PUBLISHED_ROWS))
    axes.axvline(0.0, color=GRAY, linestyle=":")
    label_axes(axes, "Gain of each part", "percentage points of success", zero=False)
    legend_below(figure, 2)


def _gain(figures: Figures, arm: str, other: str) -> Figures:
    return paired(figures["arms"], arm, other, "simulated_hours")


@drawing(3.0)
def curves(figure: Any, ablation: Figures) -> None:
    """Success over simulated hours and over generated turns, with 95 % bands, as far as all seeds got."""
    for axes, column in zip(figure.subplots(1, 2, sharey=True), COLUMNS, strict=True):
        draw_curves(axes, ablation["arms"], CURVES, column)
    legend_below(figure, 6)


@drawing(3.0)
def attempts(figure: Any, ablation: Figures) -> None:
    """What adaptive attempts and lengths do in the course of a run: attempts by kind of task, and their turns."""
    shares, lengths = figure.subplots(1, 2)
    for number, arm in enumerate(("decoupled", "+ attempts", "dart")):
        own = of_arm(ablation["arms"], arm)
        if not own:
            continue
        for kind, style in (("never", "-"), ("easy", "--")):
            quarters = range(len(own[0]["attempts"]))
            counts = [[run["attempts"][quarter] for run in own] for quarter in quarters]
            attempts_of = [sum(one[kind].get("attempts", 0) for one in part) for part in counts]
            totals = [sum(c.get("attempts", 0) for one in part for c in one.values()) for part in counts]
            turns = [sum(one[kind].get("turns", 0) for one in part) for part in counts]
            label = f"{arm}: {'never solved' if kind == 'never' else kind}"
            look = {"color": COLORS[number], "marker": MARKERS[number], "linestyle": style, "label": label}
            quarters_named = [quarter + 1 for quarter in quarters]
            shares.plot(quarters_named, [100 * a / max(t, 1) for a, t in zip(attempts_of, totals, strict=True)], **look)
            lengths.plot(quarters_named, [t / max(a, 1) for t, a in zip(turns, attempts_of, strict=True)], **look)
            for axes in (shares, lengths):
                axes.set_xticks(quarters_named)
    label_axes(shares, "Attempts by kind of task", "quarter of the run", "% of all attempts")
    label_axes(lengths, "Turns of an attempt", "quarter of the run", "turns")
    legend_below(figure, 3)


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
        for axes, values in (
            (end, [_percents(one["success_rate_final"] for one in own) for own in runs]),
            (samples, early),
            (effective, shares),
        ):
            if all(values):
                means, halves = zip(*(interval(own) for own in values), strict=True)
                color, marker = COLORS[number], MARKERS[number]
                axes.errorbar(bounds, means, halves, color=color, marker=marker, capsize=2, label=words)
    label_axes(end, "Success after 0.4 hours", "staleness bound, versions", "%")
    label_axes(samples, "Success after 5,000 turns", "staleness bound, versions", "%")
    label_axes(effective, "Effective sample size", "staleness bound, versions", "% of the samples")
    legend_below(figure, 2)


LOCKS_PICTURES: Mapping[str, StudyPicture] = {
    "ablation-success": StudyPicture(
        "Success of every arm of the ablation with 95 % intervals: dart without entropy selection and dart with stored "
        "successes kept learn most, mainly on never-solved tasks",
        arms,
    ),
    "ablation-staleness": StudyPicture(
        "Success and effective sample size by staleness bound: without importance sampling success is about half",
        staleness,
    ),
}
LONG_PICTURES: Mapping[str, StudyPicture] = {
    "ablation-long-success": StudyPicture("Success of every arm on long tasks, with 95 % intervals", arms),
    "ablation-long-curves": StudyPicture("Learning curves on long tasks, over hours and over samples", curves),
    "ablation-long-attempts": StudyPicture("Attempts by kind of task, and their turns, quarter by quarter", attempts),
    "ablation-long-parts": StudyPicture(
        "Gain of each part of the method in the paper, on long tasks and on short ones", parts, ("ablation",)
    ),
}
