"""Three schedulers on a model that learns tasks of many turns: success on held-out tasks over hours and over samples.

python -m experiments.long_job                  both suites, five seeds (ten on locks, whose runs are short)
python -m experiments.long_job --suite locks    one suite
python -m experiments.long_job --quick          one seed, cut short: the same keys

Every run of a seed starts from the same base model. Finished runs are kept in runs/experiments: the same command
resumes an interrupted study.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from dartsim.config import Config
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import play_oracle
from dartsim.envs.mock.suites import mock_tasks
from experiments.charts import drawing, legend_below
from experiments.learning import COLUMNS, draw_curves, learning_sweep, of_arm, paired, percent, points
from experiments.learning_suites import SUITES
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, recorded_line

POOL = ("curation.pool.collected_per_task=1",)
"""One success of the oracle for each task in the pool, as DART's was collected beforehand."""

SLIDE = ("policy.images_after_cut=none",)
"""DART's prompts: the oldest screenshot goes at every turn, so that each turn is a sequence of its own."""

ARMS: Mapping[str, tuple[str, ...]] = {"dartsim": POOL, "dart": (*POOL, *SLIDE), "coupled": SLIDE}
"""Preset -> what else it sets. All get the suite's model, optimizer, tasks and cluster."""

SEEDS_TIMES = {"locks": 2}
"""Suite -> how many times the number of seeds it gets."""

EQUAL = {"simulated_hours": "hours", "turns": "generated turns", "trained_turns": "trained turns"}
"""What is equal where two schedulers are compared."""


def config(suite: str, arm: str, seed: int, *, quick: bool) -> Config:
    """Return the configuration of an arm."""
    return SUITES[suite].config(seed, quick=quick, scheduler=arm, overrides=ARMS[arm])


def measure(options: Options) -> Figures:
    """Make every run of the suites that is not finished."""
    quick, suites = options.quick, [options.own.suite] if options.own.suite else list(SUITES)
    seeds = {suite: options.seeds * (1 if quick else SEEDS_TIMES.get(suite, 1)) for suite in suites}
    work = [(suite, arm, seed) for suite in suites for seed in range(seeds[suite]) for arm in ARMS]
    wanted = [SUITES[suite].run(arm, config(suite, arm, seed, quick=quick), quick=quick) for suite, arm, seed in work]
    made = learning_sweep(options, "long_job", wanted)
    runs = [{"suite": suite, **run} for (suite, _, _), run in zip(work, made, strict=True)]
    last = [run for run in runs if run["suite"] == suites[-1]]
    return {
        "curves": [
            {**{name: run[name] for name in ("suite", "arm", "seed")}, "points": curve_points(run)} for run in runs
        ],
        "dartsim_minus_dart": {
            "suite": suites[-1],
            "equal_hours": bounds(paired(last, "dartsim", "dart", "simulated_hours")),
            "equal_samples": bounds(paired(last, "dartsim", "dart", "turns")),
        },
        "runs": runs,
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {"suites": suites},
    }


def curve_points(run: Figures) -> list[Figures]:
    """Return the evaluations of a run."""
    curve = run["curve"]
    rows = zip(curve["simulated_hours"], curve["turns"], curve["success_rate"], strict=True)
    return [dict(zip(("simulated_hours", "generated_turns", "success_rate"), row, strict=True)) for row in rows]


def bounds(difference: Figures) -> Figures:
    """Return a difference at the end of runs, and the ends of its 95 % interval; None without common seeds."""
    mean, half = difference["mean"], difference["half_width"]
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return {"difference": mean, "low": low, "high": high}


def by_suite(figures: Figures) -> dict[str, list[Figures]]:
    """Return the runs of each suite."""
    suites = dict.fromkeys(run["suite"] for run in figures["runs"])
    return {suite: [run for run in figures["runs"] if run["suite"] == suite] for suite in suites}


def success_table(figures: Figures) -> Rows:
    """Success of each scheduler on held-out tasks."""
    rows = []
    for suite, runs in by_suite(figures).items():
        for arm in ARMS:
            own = of_arm(runs, arm)
            never = percent(run["by_kind_final"]["never"] for run in own if "never" in run["by_kind_final"])
            hours = own[0]["curve"]["simulated_hours"][-1]
            success = [percent(run[f"success_rate_{when}"] for run in own) for when in ("initial", "final")]
            updates = f"{sum(run['num_updates'] for run in own) / len(own):.0f}"
            rows.append([f"{suite}, `{arm}`", f"{hours:.1f}", *success, never, updates])
    return ["suite, scheduler", "hours", "base model", "success", "never-solved tasks", "updates"], rows


def difference_table(figures: Figures) -> Rows:
    """What ``dartsim`` gains over the other schedulers, seed by seed, percentage points."""
    rows = []
    for suite, runs in by_suite(figures).items():
        for other in ("dart", "coupled"):
            for column, words in EQUAL.items():
                whole, never = (paired(runs, "dartsim", other, column, of) for of in ("success_rate", "never"))
                rows.append(
                    [
                        f"{suite}: over `{other}` at equal {words}",
                        points(whole["mean"], whole["half_width"]),
                        points(never["mean"], never["half_width"]),
                        str(whole["seeds"]),
                    ]
                )
    return ["difference, percentage points", "at the end", "never-solved tasks", "seeds"], rows


def provenance(figures: Figures) -> str:
    """Return what the recorded runs were made with."""
    more = [f"{times} times as many seeds on {suite}" for suite, times in SEEDS_TIMES.items()]
    return recorded_line(figures, *more, f"{figures['cpu_seconds'] / 60:.0f} CPU minutes in all")


@drawing(3.0)
def curves(figure: Any, recorded: Figures) -> None:
    """Success on held-out tasks over simulated hours and over samples, with 95 % bands."""
    suites = by_suite(recorded)
    for axes, column in zip(figure.subplots(1, 2, sharey=True), COLUMNS, strict=True):
        draw_curves(axes, suites.get("long") or next(iter(suites.values())), list(ARMS), column)
    legend_below(figure, 3)


@drawing(2.7)
def long_task(figure: Any, _recorded: Figures) -> None:
    """The screens of a task of the suite ``long``, and the oracle's actions on them."""
    env = MockDesktop(width=96, height=96, grammar="compact", grammar_options={"columns": 3, "rows": 3})
    frames: list[Any] = []
    _, actions = play_oracle(env, mock_tasks("recall_jobs", 1, 4, 6)[0], frames=frames)
    for place, axes in enumerate(figure.subplots(2, (len(actions) + 1) // 2).flat):
        axes.axis("off")
        if place < len(actions):
            axes.imshow(frames[place], interpolation="nearest")
            axes.set_title(actions[place])


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=list(SUITES), help="only these tasks (default: all)")


STUDY = Experiment(
    name="long_job",
    about=str(__doc__),
    measure=measure,
    seeds=5,
    tables={
        "long-job-success": success_table,
        "long-job-difference": difference_table,
        "long-job-provenance": provenance,
    },
    pictures={
        "long-job": StudyPicture(
            "Success on held-out tasks over simulated hours and over samples, three schedulers", curves
        ),
        "long-task": StudyPicture("Screens of a long task: notes to remember, dialogs, three applications", long_task),
    },
    add_arguments=_own_options,
)

if __name__ == "__main__":
    STUDY.run()
