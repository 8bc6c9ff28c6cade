"""Runs that end once they are steady: do their intervals hold the long runs' mean, and how much time do they save?

python -m experiments.steady            200 runs and 32 longer ones: 8 minutes of CPU
python -m experiments.steady --quick    under a minute

Each seed of each scheduler runs with ``run.until_steady``, for at most ``HOURS``, on a cluster of 10 desktops.
*Covered* are the intervals, of runs that became steady, that hold the mean of the scheduler's long runs, 256 hours
with other seeds. *Time*: hours of all runs, as a share of ``HOURS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
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
NUM_ENVS, PRECISION, HOURS = 10, 0.08, 48.0
LONG_HOURS, LONG_SEEDS = 32.0, 8
QUICK_PRECISION, QUICK_HOURS, QUICK_LONG_HOURS, QUICK_LONG_SEEDS = 0.2, 10.0, 8.0, 2
LONG_SEED = 100_000
"""First seed of the long runs."""


def measure(options: Options) -> Figures:
    """Run all schedulers and seeds, short and long, and compare."""
    quick = options.quick
    precision, hours = (QUICK_PRECISION, QUICK_HOURS) if quick else (PRECISION, HOURS)
    long_hours, long_seeds = (QUICK_LONG_HOURS, QUICK_LONG_SEEDS) if quick else (LONG_HOURS, LONG_SEEDS)
    clusters = []
    for name, changes in SCHEDULERS.items():
        small = (*scaled(NUM_ENVS, hours), *changes)
        early = (*small, "run.until_steady=true", f"run.precision={precision}")
        clusters += [Cluster(name, hours, seed, early) for seed in range(options.seeds)]
        long = (*small, "run.warmup_share=0.1")
        clusters += [Cluster(name, long_hours, LONG_SEED + seed, long) for seed in range(long_seeds)]
    ended = iter(run_clusters(clusters, options, "runs"))
    by_scheduler = {}
    for name in SCHEDULERS:
        runs, long_runs = ([next(ended) for _ in range(number)] for number in (options.seeds, long_seeds))
        by_scheduler[name] = agreement([run["steady"] for run in runs], long_runs)
    rows = list(by_scheduler.values())
    covered = list(chain.from_iterable(figure["covered"] for row in rows for figure in row["figures"].values()))
    return {
        "runs": len(SCHEDULERS) * options.seeds,
        "coverage": fmean(covered) if covered else None,
        "time_share": fmean(row["time_share"] for row in rows),
        "schedulers": by_scheduler,
        "config": {
            "num_envs": NUM_ENVS,
            "precision": precision,
            "hours": hours,
            "long_hours": long_hours,
            "long_seeds": long_seeds,
        },
    }


def agreement(runs: Sequence[Figures], long_runs: Sequence[Figures]) -> Figures:
    """Return how the intervals of runs that became steady agree with long runs.

    Args:
        runs: ``steady`` of each run (``SteadyCheck.as_json``).
        long_runs: Figures of the long runs.
    """
    steady = [run for run in runs if run["reached"]]
    figures = {}
    for name in NAMES:
        values = [run[name] for run in long_runs]
        intervals = [run["figures"][name] for run in steady]
        covered = [abs(found["mean"] - fmean(values)) <= found["half_width"] for found in intervals]
        figures[name] = {
            "long": {"mean": fmean(values), "half_width": half_width(values)},
            "mean": fmean(found["mean"] for found in intervals) if intervals else None,
            "covered": covered,
            "coverage": fmean(covered) if covered else None,
        }
    return {
        "runs": len(runs),
        "steady": len(steady),
        "hours": median(run["hours"] for run in runs),
        "time_share": fmean(run["hours"] / run["planned_hours"] for run in runs),
        "figures": figures,
    }


def table(figures: Figures) -> Rows:
    """Return coverage by scheduler and figure, and the time saved."""
    columns = {
        "scheduler": "{name}",
        "steady": "{steady} of {runs}",
        "median h": "{hours:.1f}",
        "time, %": "{time_share:.0p}",
        "trained turns/min of long runs": "{figures[trained_turns_per_minute][long]:.1f}",
        "of steady runs": "{figures[trained_turns_per_minute][mean]:.1f}",
        "covered, %": "{figures[trained_turns_per_minute][coverage]:.0p}",
        "environment utilization, %": "{figures[env_utilization][coverage]:.0p}",
        "GPU utilization, %": "{figures[gpu_utilization][coverage]:.0p}",
    }
    return rows_of(columns, [{"name": f"`{name}`", **row} for name, row in figures["schedulers"].items()])


STUDY = Experiment(
    name="steady",
    about="Coverage of the intervals of runs that end once they are steady, and the time they save.",
    measure=measure,
    tables={"steady": table},
    seeds=50,
    quick_seeds=4,
)

if __name__ == "__main__":
    STUDY.run()
