"""The ablation: DART's parts added one after another, added alone and left out, on a model that really learns.

python -m experiments.ablation                                 tasks of 1 to 4 turns: half an hour of CPU time
python -m experiments.ablation --suite long                    tasks of 6 to 15 turns
python -m experiments.ablation --arms dart "dart, one step"    only these arms
python -m experiments.ablation --quick                         one seed, cut short: the same keys

Arms and parts stand in ``studies.toml``. Finished runs are kept in runs/experiments: the same command goes on with a
study that was ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dartsim.config import Config
from experiments.arms import declared
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
from experiments.learning import arm_names, learning_sweep, of_arm, paired
from experiments.learning_suites import SUITES
from experiments.study import Experiment, Figures, Options, StudyPicture, interval, recorded_line

SCREENING_SEEDS = 2
"""Seeds of arms that are not chosen, on suites where a run is long."""

DECLARED = declared()["ablation"]
PARTS: Mapping[str, Mapping[str, list[str]]] = DECLARED["parts"]
ARMS: Mapping[str, Mapping[str, Any]] = DECLARED["arms"]
PUBLISHED: Mapping[str, float] = DECLARED["published"]


def overrides(arm: str, bound: int) -> tuple[str, ...]:
    """Return what distinguishes an arm at a staleness bound: parts, schedule, and batches admitted ahead."""
    own = ARMS[arm]
    chosen = [change for name, part in PARTS.items() for change in part["with" if name in own["parts"] else "without"]]
    chosen += [f"curation.staleness.max_staleness={bound}", f"curation.admission.ahead_batches={bound + 1.0}"]
    return (*chosen, *own.get("changes", ()), *(COUPLED if own.get("coupled") else ()))


COUPLED = (
    "rollout.unit=batch",
    "rollout.lockstep=true",
    "rollout.sync.mode=drain",
    "rollout.sync.workers_at_a_time=all",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
    "trainer.wait_for_sync=true",
)
"""As the preset ``coupled``: lock-step turns, whole batches, nothing overlaps, every group is trained on."""


def bound_of(arm: str) -> int:
    """Return the staleness bound of an arm, where none is asked for."""
    return 0 if ARMS[arm].get("coupled") else 1


def config(arm: str, seed: int, bound: int | None = None, *, suite: str = "locks", quick: bool = False) -> Config:
    """Return the configuration of an arm."""
    own = overrides(arm, bound_of(arm) if bound is None else bound)
    return SUITES[suite].config(seed, quick=quick, overrides=own)


def jobs(suite: str, arms: Sequence[str], seeds: int) -> list[tuple[str, int, int]]:
    """Return arm, seed and staleness bound of every run of the study, the arms that matter first."""
    few = min(seeds, seeds if suite == "locks" else SCREENING_SEEDS)
    chosen = [arm for arm, own in ARMS.items() if suite in own.get("chosen", ())]
    found = [(arm, seed, bound_of(arm)) for seed in range(few) for arm in (*chosen, *ARMS)]
    found += [(arm, seed, bound_of(arm)) for seed in range(few, seeds) for arm in chosen]
    for arm, own in ARMS.items():
        found += [(arm, seed, bound) for seed in range(few) for bound in own.get("bounds", {}).get(suite, ())]
    return [job for job in dict.fromkeys(found) if job[0] in arms]


def measure(options: Options) -> Figures:
    """Make every run of the suite that is not finished."""
    suite, quick = SUITES[options.own.suite], options.quick
    work = jobs(options.own.suite, options.own.arms, options.seeds)
    configs = [config(*job, suite=options.own.suite, quick=quick) for job in work]
    wanted = [suite.run(arm, made, quick=quick) for (arm, _, _), made in zip(work, configs, strict=True)]
    runs = learning_sweep(options, f"ablation-{options.own.suite}", wanted)
    return {
        "suite": options.own.suite,
        "arms": [run for run in runs if run["bound"] == bound_of(run["arm"])],
        "staleness": [run for run in runs if run["arm"] == "dart"],
        "staleness_without_alignment": [run for run in runs if run["arm"] == "dart - alignment"],
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {"hours": suite.hours(quick=quick)},
    }


def provenance(figures: Figures) -> str:
    """Return what the recorded ablation was run with."""
    hours, minutes = figures["config"]["hours"], figures["cpu_seconds"] / 60.0
    return recorded_line(figures, f"{hours:g} simulated hours a run", f"{minutes:.0f} CPU minutes in all")


KIND_STYLES: Mapping[str, tuple[str, str, str]] = {
    "easy": (BLUE, "o", "easy"),
    "hard": (GREEN, "^", "hard"),
    "never": (ORANGE, "s", "never solved"),
}

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
        for place, (kind, (shade, marker, words)) in enumerate(KIND_STYLES.items()):
            known = _percents(run["by_kind_final"][kind] for run in own if kind in run["by_kind_final"])
            if known:
                mean, half = interval(known)
                label = None if row else f"{words} by the base model"
                at = row + 0.22 * (place - 1)
                by_kind.errorbar([mean], [at], xerr=[half], color=shade, marker=marker, ls="", label=label)
    for axes, title in ((whole, "Success on held-out tasks"), (by_kind, "by kind of task")):
        rows_axis(axes, names)
        axes.set_xlim(0.0, 100.0)
        label_axes(axes, title, f"% after {ablation['config']['hours']:g} simulated hours", zero=False)
    legend_below(figure, 3)


def _percents(shares: Iterable[float]) -> list[float]:
    return [100.0 * share for share in shares]


@drawing(3.2, 7.5)
def parts(figure: Any, long: Figures, locks: Figures) -> None:
    """What each part adds: in the paper, on long tasks and on short ones."""
    axes, named = figure.subplots(), set[str]()
    for row, (part, (before, after, arm_before, arm)) in enumerate(PUBLISHED_ROWS.items()):
        published = PUBLISHED[after] - PUBLISHED[before]
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


@drawing(2.7)
def staleness(figure: Any, ablation: Figures) -> None:
    """Success and effective sample size by staleness bound, with and without importance sampling."""
    end, samples, effective = figure.subplots(1, 3)
    for number, (words, key) in enumerate(
        {"with importance sampling": "staleness", "without": "staleness_without_alignment"}.items()
    ):
        bounds = sorted({run["bound"] for run in ablation[key]})
        runs = [[run for run in ablation[key] if run["bound"] == bound] for bound in bounds]
        panels = {
            end: [[run["success_rate_final"] for run in own] for own in runs],
            samples: [[_after(run, 5_000) for run in own] for own in runs],
            effective: [[run["importance"][SAMPLES] for run in own if SAMPLES in run["importance"]] for own in runs],
        }
        for axes, shares in panels.items():
            if all(shares):
                means, halves = zip(*(interval(_percents(own)) for own in shares), strict=True)
                color, marker = COLORS[number], MARKERS[number]
                axes.errorbar(bounds, means, halves, color=color, marker=marker, capsize=2, label=words)
    label_axes(end, "Success after 0.4 hours", "staleness bound, versions", "%")
    label_axes(samples, "Success after 5,000 turns", "staleness bound, versions", "%")
    label_axes(effective, "Effective sample size", "staleness bound, versions", "% of the samples")
    legend_below(figure, 2)


SAMPLES = "raw_effective_sample_share"


def _after(run: Figures, turns: int) -> float:
    return float(np.interp(turns, run["curve"]["turns"], run["curve"]["success_rate"]))


RECORDED_AS = {"locks": "ablation", "long": "ablation_long"}


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=list(SUITES), default="locks", help="tasks (default: locks)")
    words = "only these arms (default: all); a wrong name lists them"
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM", help=words)


STUDY = Experiment(
    name="ablation",
    about=str(__doc__),
    measure=measure,
    seeds=5,
    tables={"ablation-provenance": provenance},
    pictures={
        "ablation-success": StudyPicture(
            "Success of every arm of the ablation with 95 % intervals: dart without entropy selection and dart with "
            "stored successes kept learn most, mainly on never-solved tasks",
            arms,
        ),
        "ablation-staleness": StudyPicture(
            "Success and effective sample size by staleness bound: without importance sampling success is about half",
            staleness,
        ),
    },
    add_arguments=_own_options,
    record_as=lambda own: RECORDED_AS[own.suite],
)
LONG_STUDY = replace(
    STUDY,
    tables={"ablation-long-provenance": provenance},
    pictures={
        "ablation-long-success": StudyPicture("Success of every arm on long tasks, with 95 % intervals", arms),
        "ablation-long-parts": StudyPicture(
            "Gain of each part of the method in the paper, on long tasks and on short ones", parts, ("ablation",)
        ),
    },
    recorded_as=RECORDED_AS["long"],
)

if __name__ == "__main__":
    STUDY.run()
