"""Runs that end once they are steady: do their intervals hold the long runs' mean, and how much time do they save?

python -m experiments.steady            216 runs and 25 reference runs: 20 minutes of CPU time
python -m experiments.steady --quick    a minute

Each seed of each scheduler runs with ``run.until_steady``, for at most so many hours, on a cluster of 10 desktops; and
`dart-measured` with 200, whose updates are few and large. Tasks are equally long: with lengths drawn by the seed, each
seed would have a mean of its own for its intervals to hold. *Covered* are the intervals, of runs that became steady,
that agree with the mean of the scheduler's reference runs, of other seeds: the two differ by at most the half width of
an interval of their difference, the root of the sum of both squared half widths. *Within* are figures that differ from
that mean by at most the precision. Reference runs leave out their first third, in which rules that learn about tasks
meet each task for the first time; trained turns count from update to update. *Time*: hours of all runs, as a share of
the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import hypot
from statistics import fmean, median

from dartsim.lab.comparison import half_width
from dartsim.lab.sweep import ArmRun
from dartsim.observe.steady import HEADLINE
from experiments.arms import Arm, arms_of, run_cluster, studies
from experiments.speed import scaled
from experiments.study import Experiment, Figures, Options, short_commit

DECLARED = studies()["steady"]
NAMES = HEADLINE
REFERENCES = {"trained_turns_per_minute": "steady_turns_per_minute"}
"""What a figure is compared with in a reference run, where its own would count a part of a large update."""
LONG_SEEDS, LONG_SEED, LONG_WARMUP = 5, 100_000, 1.0 / 3.0
"""Reference runs of a scheduler, the seed of the first, and the share that they leave out."""
QUICK_PRECISION, QUICK_LONG_SEEDS = 0.2, 2


def measure(options: Options) -> Figures:
    """Run all schedulers and seeds, short and long, and compare."""
    rows = {
        str(arm.names["scheduler"]): {"num_envs": arm.keys["num_envs"], **agreement(*runs_of(arm, options))}
        for arm in arms_of(DECLARED, quick=options.quick)
    }
    covered = list(chain.from_iterable(own["covered"] for row in rows.values() for own in row["figures"].values()))
    return {
        "runs": sum(row["runs"] for row in rows.values()),
        "coverage": fmean(covered) if covered else None,
        "time_share": fmean(row["time_share"] for row in rows.values()),
        "schedulers": rows,
        "config": {"long_seeds": QUICK_LONG_SEEDS if options.quick else LONG_SEEDS, "long_warmup_share": LONG_WARMUP},
    }


def runs_of(arm: Arm, options: Options) -> tuple[list[Figures], list[Figures]]:
    """Return how the runs of a scheduler that end when steady ended, and the figures of its reference runs."""
    hours, precision = arm.keys["hours"], QUICK_PRECISION if options.quick else arm.keys["precision"]
    long_seeds = QUICK_LONG_SEEDS if options.quick else LONG_SEEDS
    # Scaled first, so that the arm's own changes win.
    equal = (*scaled(arm.keys["num_envs"], hours), "surrogate.task_length_sd=0.0", *arm.changes)
    early = replace(arm, hours=hours, changes=(*equal, f"run.until_steady={precision}"))
    long = replace(arm, changes=(*equal, f"run.warmup_share={LONG_WARMUP:.3f}"))
    clusters = [early.cluster(seed) for seed in range(0, options.seeds, arm.keys["every"])]
    clusters += [long.cluster(LONG_SEED + seed) for seed in range(long_seeds)]
    made = options.sweep(run_cluster, [ArmRun(one.preset, one.seed, one) for one in clusters], arm.label)
    return [run["steady"] for run in made[:-long_seeds]], made[-long_seeds:]


def agreement(runs: Sequence[Figures], long_runs: Sequence[Figures]) -> Figures:
    """Return how the intervals of runs that became steady agree with long runs.

    Args:
        runs: ``steady`` of each run (``SteadyCheck.as_json``).
        long_runs: Figures of the long runs.
    """
    steady = [run for run in runs if run["reached"]]
    figures: dict[str, Figures] = {}
    for name in NAMES:
        values = [run[REFERENCES.get(name, name)] for run in long_runs]
        mean, width = fmean(values), half_width(values) or 0.0
        intervals = [run["figures"][name] for run in steady]
        covered = [abs(found["mean"] - mean) <= hypot(found["half_width"], width) for found in intervals]
        figures[name] = {
            "long": {"mean": mean, "half_width": width},
            "mean": fmean(found["mean"] for found in intervals) if intervals else None,
            "within": [abs(found["mean"] - mean) <= runs[0]["precision"] * mean for found in intervals],
            "covered": covered,
            "coverage": fmean(covered) if covered else None,
        }
    return {
        "runs": len(runs),
        "precision": runs[0]["precision"],
        "steady": len(steady),
        "drifting": sum(run["drifting"] for run in runs if not run["reached"]),
        "hours": median(run["hours"] for run in runs),
        "time_share": fmean(run["hours"] / run["planned_hours"] for run in runs),
        "within": fmean(chain.from_iterable(figure["within"] for figure in figures.values())) if steady else None,
        "figures": figures,
    }


def found(figures: Figures) -> str:
    """Return how often figures and intervals of steady runs agree with those of long runs, and the time saved."""
    rows = {name: row for name, row in figures["schedulers"].items() if row["steady"]}
    names, others = (
        ", ".join(f"`{name}`" for name in figures["schedulers"] if (name in rows) is steady) for steady in (True, False)
    )
    steady, runs = (sum(row[key] for row in rows.values()) for key in ("steady", "runs"))
    coverages = [own["coverage"] for row in rows.values() for own in row["figures"].values()]
    times = [row["time_share"] for row in rows.values()]
    within = min(row["within"] for row in rows.values())
    return (
        f"{steady} of {runs} runs of {names} became steady, in {min(times):.0%} to {max(times):.0%} of their hours; "
        f"none of {others or 'the others'} did. {within:.0%} of their figures were within the precision of the mean of "
        f"long runs, and their intervals, nominally 95%, agreed with it in {min(coverages):.0%} to "
        f"{max(coverages):.0%} of cases (`python -m experiments.steady`, commit {short_commit(figures)}).\n"
    )


STUDY = Experiment(
    name="steady",
    about=DECLARED["about"],
    measure=measure,
    tables={"steady": found},
    seeds=64,
    quick_seeds=4,
)

if __name__ == "__main__":
    STUDY.run()
