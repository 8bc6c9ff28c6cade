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

from collections.abc import Mapping, Sequence
from itertools import chain
from math import hypot
from statistics import fmean, median
from typing import NamedTuple

from dartsim.config.sections.run import RunConfig
from dartsim.lab.comparison import half_width
from experiments.clusters import Cluster, run_clusters
from experiments.speed import scaled
from experiments.study import Experiment, Figures, Options, Rows, rows_of


class StudiedScheduler(NamedTuple):
    """A scheduler and its cluster.

    Attributes:
        changes: By which rollout and trainer limit it about equally, or its rules fit the small batches.
        num_envs: Desktops.
        precision: Of the runs that end once they are steady.
        hours: Simulated hours at most, and those of the reference runs.
        every: Which of the seeds run: 1 for each.
    """

    changes: tuple[str, ...] = ()
    num_envs: int = 10
    precision: float = 0.08
    hours: float = 72.0
    every: int = 1


FAST = ("cluster.learner.kilotoken_seconds=0.1",)
SCHEDULERS: Mapping[str, StudiedScheduler] = {
    "coupled": StudiedScheduler(("curation.max_ahead=16",)),
    "areal-eta4": StudiedScheduler(FAST),
    "dart": StudiedScheduler(),
    "dartsim": StudiedScheduler(FAST, every=8),  # runs that are seldom steady take all their hours
    "dart-measured": StudiedScheduler(num_envs=200, precision=0.03, hours=24.0, every=4),
}
NAMES = tuple(RunConfig().steady_figures)
REFERENCES = {"trained_turns_per_minute": "steady_turns_per_minute"}
"""What a figure is compared with in a reference run, where its own would count a part of a large update."""
EQUAL = ("surrogate.task_length_sd=0.0",)
LONG_SEEDS, LONG_WARMUP = 5, 1.0 / 3.0
QUICK_PRECISION, QUICK_LONG_SEEDS = 0.2, 2
QUICK_SHARE = 1.0 / 6.0
"""Hours of the reference runs of a quick study, as a share."""
LONG_SEED = 100_000
"""First seed of the reference runs."""


def measure(options: Options) -> Figures:
    """Run all schedulers and seeds, short and long, and compare."""
    long_seeds = QUICK_LONG_SEEDS if options.quick else LONG_SEEDS
    clusters = []
    for name, arm in SCHEDULERS.items():
        precision = QUICK_PRECISION if options.quick else arm.precision
        hours, long_hours = arm.hours, arm.hours * QUICK_SHARE if options.quick else arm.hours
        settings = (*scaled(arm.num_envs, hours), *EQUAL, *arm.changes)
        early = (*settings, "run.until_steady=true", f"run.precision={precision}")
        clusters += [Cluster(name, hours, seed, early) for seed in seeds_of(arm, options)]
        long = (*settings, f"run.warmup_share={LONG_WARMUP:.3f}")
        clusters += [Cluster(name, long_hours, LONG_SEED + seed, long) for seed in range(long_seeds)]
    ended = iter(run_clusters(clusters, options, "runs"))
    by_scheduler = {}
    for name, arm in SCHEDULERS.items():
        numbers = (len(seeds_of(arm, options)), long_seeds)
        runs, long_runs = ([next(ended) for _ in range(number)] for number in numbers)
        row = agreement([run["steady"] for run in runs], long_runs)
        by_scheduler[name] = {"num_envs": arm.num_envs, **row}
    rows = list(by_scheduler.values())
    covered = list(chain.from_iterable(figure["covered"] for row in rows for figure in row["figures"].values()))
    return {
        "runs": sum(row["runs"] for row in rows),
        "coverage": fmean(covered) if covered else None,
        "time_share": fmean(row["time_share"] for row in rows),
        "schedulers": by_scheduler,
        "config": {
            "schedulers": {name: arm._asdict() for name, arm in SCHEDULERS.items()},
            "long_seeds": long_seeds,
            "long_warmup_share": LONG_WARMUP,
        },
    }


def seeds_of(arm: StudiedScheduler, options: Options) -> range:
    """Return the seeds that a scheduler runs with."""
    return range(0, options.seeds, arm.every)


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


def table(figures: Figures) -> Rows:
    """Return coverage by scheduler and figure, and the time saved."""
    columns = {
        "scheduler": "{name}",
        "desktops": "{num_envs}",
        "precision, %": "{precision:.0p}",
        "steady": "{steady} of {runs}",
        "still drifting": "{drifting}",
        "median h": "{hours:.1f}",
        "time, %": "{time_share:.0p}",
        "trained turns/min of long runs": "{figures[trained_turns_per_minute][long]:.1f}",
        "of steady runs": "{figures[trained_turns_per_minute][mean]:.1f}",
        "figures within it, %": "{within:.0p}",
        "trained turns covered, %": "{figures[trained_turns_per_minute][coverage]:.0p}",
        "environment utilization, %": "{figures[env_utilization][coverage]:.0p}",
        "GPU utilization, %": "{figures[gpu_utilization][coverage]:.0p}",
    }
    return rows_of(columns, [{"name": f"`{name}`", **row} for name, row in figures["schedulers"].items()])


STUDY = Experiment(
    name="steady",
    about="Coverage of the intervals of runs that end once they are steady, and the time they save.",
    measure=measure,
    tables={"steady": table},
    seeds=64,
    quick_seeds=4,
)

if __name__ == "__main__":
    STUDY.run()
