"""Runs that end once they are steady: do their intervals hold the long runs' mean, and how much time do they save?

python -m experiments.steady            200 runs and 20 reference runs: 15 minutes of CPU
python -m experiments.steady --quick    under a minute

Each seed of each scheduler runs with ``run.until_steady``, for at most ``HOURS``, on a cluster of 10 desktops. Tasks
are equally long: with lengths drawn by the seed, each seed would have a mean of its own for its intervals to hold.
*Covered* are the intervals, of runs that became steady, that agree with the mean of the scheduler's reference runs, of
other seeds: the two differ by at most the half width of an interval of their difference, the root of the sum of both
squared half widths. *Within* are figures that differ from that mean by at most ``PRECISION`` of it. Reference runs
leave out their first day, in which the rules that learn about tasks meet each task for the first time. *Time*: hours of
all runs, as a share of ``HOURS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import hypot
from statistics import fmean, median

from dartsim.config.sections.run import RunConfig
from dartsim.lab.comparison import half_width
from experiments.clusters import Cluster, run_clusters
from experiments.speed import scaled
from experiments.study import Experiment, Figures, Options, Rows, rows_of

FAST = ("cluster.learner.kilotoken_seconds=0.1",)
SCHEDULERS: Mapping[str, tuple[str, ...]] = {
    "coupled": ("curation.max_ahead=16",),
    "areal-eta4": FAST,
    "dart": (),
    "dartsim": FAST,
}
"""Changes of each, by which rollout and trainer limit it about equally, or its rules fit the small batches."""
NAMES = tuple(RunConfig().steady_figures)
EQUAL = ("surrogate.task_length_sd=0.0",)
NUM_ENVS, PRECISION, HOURS = 10, 0.08, 72.0
LONG_HOURS, LONG_SEEDS, LONG_WARMUP = 72.0, 5, 1.0 / 3.0
QUICK_PRECISION, QUICK_HOURS, QUICK_LONG_HOURS, QUICK_LONG_SEEDS = 0.2, 24.0, 12.0, 2
LONG_SEED = 100_000
"""First seed of the long runs."""
EVERY = {"dartsim": 8}
"""Which of the seeds run, where it is not each: runs that are seldom steady take all their hours."""


def measure(options: Options) -> Figures:
    """Run all schedulers and seeds, short and long, and compare."""
    quick = options.quick
    precision, hours = (QUICK_PRECISION, QUICK_HOURS) if quick else (PRECISION, HOURS)
    long_hours, long_seeds = (QUICK_LONG_HOURS, QUICK_LONG_SEEDS) if quick else (LONG_HOURS, LONG_SEEDS)
    clusters = []
    for name, changes in SCHEDULERS.items():
        early = (*scaled(NUM_ENVS, hours), *EQUAL, *changes, "run.until_steady=true", f"run.precision={precision}")
        clusters += [Cluster(name, hours, seed, early) for seed in seeds_of(name, options)]
        long = (*scaled(NUM_ENVS, long_hours), *EQUAL, *changes, f"run.warmup_share={LONG_WARMUP:.3f}")
        clusters += [Cluster(name, long_hours, LONG_SEED + seed, long) for seed in range(long_seeds)]
    ended = iter(run_clusters(clusters, options, "runs"))
    by_scheduler = {}
    for name in SCHEDULERS:
        numbers = (len(seeds_of(name, options)), long_seeds)
        runs, long_runs = ([next(ended) for _ in range(number)] for number in numbers)
        by_scheduler[name] = agreement([run["steady"] for run in runs], long_runs)
    rows = list(by_scheduler.values())
    covered = list(chain.from_iterable(figure["covered"] for row in rows for figure in row["figures"].values()))
    return {
        "runs": sum(row["runs"] for row in rows),
        "coverage": fmean(covered) if covered else None,
        "time_share": fmean(row["time_share"] for row in rows),
        "schedulers": by_scheduler,
        "config": {
            "num_envs": NUM_ENVS,
            "precision": precision,
            "hours": hours,
            "long_hours": long_hours,
            "long_seeds": long_seeds,
            "long_warmup_share": LONG_WARMUP,
            "every": dict(EVERY),
        },
    }


def seeds_of(name: str, options: Options) -> range:
    """Return the seeds that a scheduler runs with."""
    return range(0, options.seeds, EVERY.get(name, 1))


def agreement(runs: Sequence[Figures], long_runs: Sequence[Figures]) -> Figures:
    """Return how the intervals of runs that became steady agree with long runs.

    Args:
        runs: ``steady`` of each run (``SteadyCheck.as_json``).
        long_runs: Figures of the long runs.
    """
    steady = [run for run in runs if run["reached"]]
    figures: dict[str, Figures] = {}
    for name in NAMES:
        values = [run[name] for run in long_runs]
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
        "steady": "{steady} of {runs}",
        "still drifting": "{drifting}",
        "median h": "{hours:.1f}",
        "time, %": "{time_share:.0p}",
        "trained turns/min of long runs": "{figures[trained_turns_per_minute][long]:.1f}",
        "of steady runs": "{figures[trained_turns_per_minute][mean]:.1f}",
        "figures within 8 %, %": "{within:.0p}",
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
