"""What studies of learning share: resumable runs of arms and seeds, paired intervals, curves.

    suite + scheduler + changes --> LearningRun --learning_sweep--> figures of each run --paired--> intervals

A finished run is kept in ``runs/experiments`` and used again only if its configuration, its base model's and the
version of the code are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dartsim.lab.sweep import ArmRun, Report, Results, sweep
from experiments.charts import COLORS, MARKERS, label_axes
from experiments.learning_suites import LearningRun
from experiments.study import Figures, Options, interval

FOLDER = Path("runs") / "experiments"
"""Where finished runs and base models are kept."""

COLUMNS = {"simulated_hours": ("by time", "simulated hours"), "turns": ("by samples", "generated turns")}
"""What success is shown over: title and label of the axis."""


def learning_sweep(options: Options, name: str, runs: Sequence[LearningRun]) -> list[Figures]:
    """Make the runs that are not finished, from the base models of their seeds, on all cores.

    Args:
        options: Of the study; ``results`` is the file of finished runs, by default in ``FOLDER``.
        name: Of the study, and of that file.
        runs: The runs; those that are equal are made once.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # before a worker process imports torch
    results = options.results or FOLDER / f"{name}.jsonl"
    wanted = {run.key: run for run in (ArmRun(one.arm, one.seed, one) for one in runs)}
    known = Results(results)
    left = [run for key, run in wanted.items() if key not in known]
    folder = results.parent.absolute()
    options.console.print(f"{len(wanted) - len(left)} of {len(wanted)} runs are finished, in {results}", soft_wrap=True)
    bases = {run.spec.base_folder(folder): ArmRun("base model", run.seed, run.spec) for run in left}
    try:
        sweep(partial(_make_base, folder), list(bases.values()), console=options.console, name="base models")
        made = sweep(
            partial(_make_run, folder),
            list(wanted.values()),
            console=options.console,
            results=results,
            reports=True,
        )
    except KeyboardInterrupt:
        options.console.print(f"interrupted: the same command makes the runs that are not in {results}")
        raise SystemExit(130) from None
    return [{"arm": run.arm, "seed": run.seed, **figures} for run, figures in zip(wanted.values(), made, strict=True)]


def _make_base(folder: Path, run: LearningRun) -> float:
    from experiments.learning_runs import made_base  # torch takes its seconds

    return float(made_base(run, run.base_folder(folder))["cpu_seconds"])


def _make_run(folder: Path, run: LearningRun, report: Report) -> Figures:
    from experiments.learning_runs import run_from

    return run_from(run, run.base_folder(folder), report)


def of_arm(runs: Sequence[Figures], arm: str) -> list[Figures]:
    """Return the runs of an arm, by seed."""
    return sorted((run for run in runs if run["arm"] == arm), key=lambda run: run["seed"])


def arm_names(runs: Sequence[Figures]) -> list[str]:
    """Return the names of all arms, in their order."""
    return list(dict.fromkeys(run["arm"] for run in runs))


def at(run: Figures, column: str, place: float, of: str = "success_rate") -> float:
    """Return the success of a run at a place of a column of its curve, between evaluations linearly."""
    return float(np.interp(place, run["curve"][column], run["curve"][of]))


def paired(runs: Sequence[Figures], arm: str, other: str, column: str, of: str = "success_rate") -> Figures:
    """Return the difference of success between two arms, seed by seed, as far as both got in ``column``.

    Args:
        runs: Runs of both arms with equal seeds; a seed that only one of them has does not count.
        arm: The first arm.
        other: The arm that is subtracted.
        column: ``simulated_hours`` or ``turns``.
        of: ``success_rate``, or a kind of task.

    Returns:
        ``mean`` and ``half_width`` of the 95 % interval of the difference at the end; ``over_mean`` and
        ``over_half_width`` of the mean difference on the way there; ``seeds``.
    """
    others = {run["seed"]: run for run in of_arm(runs, other)}
    ends, means = [], []
    for run in of_arm(runs, arm):
        if (pair := others.get(run["seed"])) is None or of not in run["curve"]:
            continue
        end = min(one["curve"][column][-1] for one in (run, pair))
        places = np.linspace(0.0, end, 101)
        differences = [at(run, column, place, of) - at(pair, column, place, of) for place in places]
        ends.append(differences[-1])
        means.append(fmean(differences))
    if not ends:
        return {"mean": None, "half_width": None, "over_mean": None, "over_half_width": None, "seeds": 0}
    (mean, half), (over, over_half) = interval(ends), interval(means)
    return {"mean": mean, "half_width": half, "over_mean": over, "over_half_width": over_half, "seeds": len(ends)}


def percent(values: Iterable[float]) -> str:
    """Return the mean of shares with its interval, in percent; a dash if there are none."""
    known = list(values)
    mean, half = interval(known) if known else (None, None)
    return "–" if mean is None or half is None else f"{mean * 100:.0f} ± {half * 100:.0f} %"


def points(mean: float | None, half: float | None) -> str:
    """Return a difference with its interval, in percentage points."""
    return "–" if mean is None or half is None else f"{mean * 100:+.0f} ± {half * 100:.0f}"


def draw_curves(axes: Any, runs: Sequence[Figures], arms: Sequence[str], column: str) -> None:
    """Draw the success of arms over a column with 95 % bands, as far as all seeds of an arm got."""
    for number, arm in enumerate(arms):
        known = of_arm(runs, arm)
        if not known:
            continue
        places = np.linspace(0.0, min(run["curve"][column][-1] for run in known), 25)
        table = [[at(run, column, place) for run in known] for place in places]
        means, halves = np.array([interval(row) for row in table]).T * 100.0
        color, marker = COLORS[number], MARKERS[number]
        axes.fill_between(places, means - halves, means + halves, color=color, alpha=0.13, linewidth=0)
        axes.plot(places, means, color=color, marker=marker, markevery=6, label=arm)
    title, words = COLUMNS[column]
    label_axes(axes, f"Success {title}", words, "%" if column == "simulated_hours" else "")
