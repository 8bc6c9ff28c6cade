"""The whole loop for real, then the same configuration in virtual time: what it learned, and how well it is predicted.

python -m experiments.real_loop                      two vLLM engines on CPU, 5 minutes; needs DARTSIM_VLLM_PYTHON
python -m experiments.real_loop --backend mock       the mock desktop by the machine's clock, a local worker, 6 minutes
python -m experiments.real_loop --backend desktop    8 real containers, a local worker, 15 minutes; needs Docker
python -m experiments.real_loop --quick              the same keys in a minute

With engines, weights are pushed to one engine at a time while it serves (mode ``keep``), the learner works in a thread
of its own, and every trajectory is kept in SQLite. The twin is the same configuration in virtual time, on the profile
that the timings of that very run give. It is run with several seeds: the spread of their figures is that of a real run
of this length, however good the model is. The prediction is their mean; ``outside`` lists the figures of the real run
that lie outside the 95 % interval of one more run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import mean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

from dartsim.config import Config, load
from dartsim.core.errors import ConfigError
from dartsim.core.install import VLLM_PYTHON
from dartsim.lab.comparison import student_t
from dartsim.lab.measure import measure as measured_by
from dartsim.lab.virtual import COMPARED, compare, compared_figures, twin
from dartsim.observe.timings import TIMINGS, read_timings
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments.arms import declared
from experiments.study import Experiment, Figures, Options, short_commit

BACKENDS = ("desktop", "mock", "vllm")
TWINS = 8
"""Seeds of the twin."""

FigureValues = Mapping[str, float | None]


def config(run: str, seed: int, *, quick: bool, minutes: float | None = None, changes: Sequence[str] = ()) -> Config:
    """Return the configuration of a real run; it ends by time alone, so that the twin can last as long."""
    own = declared()["real"][run]
    length = minutes or own["quick_minutes" if quick else "minutes"]
    ends = (f"run.hours={length / 60.0}", f"run.seed={seed}", "run.updates=none", "run.target_success=none")
    shorter = own["quick_changes"] if quick else ()
    settings = ("backend.learner=local", *ends, "run.max_segments=0", *own["changes"], *shorter, *changes)
    return load(own["preset"], overrides=settings)


def run_seed(real: Config, out: Path | None = None) -> Figures:
    """Run for real, measure, run the twin; return both runs' figures and what was measured."""
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        path = folder / "real"
        done, result = execute(real, path)
        if result.interrupted:  # half a run says nothing
            raise KeyboardInterrupt
        entries = read_timings(path)
        measured = measured_by(real, entries)
        virtual = twin(real, measured, done.summary, path / TIMINGS)
        first, _ = execute(virtual, folder / "twin")
        others = [virtual.replace(run={"seed": real.run.seed + number}) for number in range(1, TWINS)]
        summaries = [first.summary, *(run_prepared(prepare(other)).figures for other in others)]
        return {
            "seed": real.run.seed,
            **compare_with_twins(compared_figures(done.summary), [compared_figures(each) for each in summaries]),
            "success_rate_first": done.summary["success_rate_initial"],
            "success_rate_last": done.summary["success_rate_final"],
            **requests(done.summary),
            "sync_seconds_p50": median(entry["seconds"] for entry in entries if entry["what"] == "worker/load"),
            "num_updates": done.summary["total_updates"],
            "generated_turns": sum(entry["what"] == "worker/generate" for entry in entries),
            "faults": done.summary["faults"],
            "counts": measured.counts,
            "settings": measured.settings,
        }


def compare_with_twins(measured: FigureValues, twins: Sequence[FigureValues]) -> Figures:
    """Return a run's figures beside the means of its twins, their intervals, and the figures that lie outside."""
    intervals = {name: interval([each[name] for each in twins]) for name in measured}
    compared = compare(measured, {name: None if each is None else mean(each) for name, each in intervals.items()})
    outside = [
        name
        for name, each in intervals.items()
        if each is not None and compared["relative_error"][name] and not each[0] <= (measured[name] or 0.0) <= each[1]
    ]
    return {**compared, "predicted_interval": intervals, "outside": outside}


def interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the 95 % interval of one more value; None if one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    half = student_t(0.05, len(known) - 1) * sqrt(1.0 + 1.0 / len(known)) * stdev(known)
    return mean(known) - half, mean(known) + half


def requests(summary: Mapping[str, Any]) -> dict[str, int]:
    """Return how many requests an engine failed, which were retried elsewhere, and how many were never answered."""
    faults = summary["faults"]
    return {
        "failed_requests": faults.get("request_worker", 0) + faults.get("request_restarted", 0),
        "lost_requests": summary["endings"].get("worker_fault", 0),
    }


def measure(options: Options) -> Figures:
    """Run all seeds, one after the other: a real run needs the machine for itself."""
    own = options.own
    if own.backend == "vllm":
        require_vllm()
    settings = {"quick": options.quick, "minutes": own.minutes, "changes": own.set}
    configs = [config(own.backend, seed, **settings) for seed in range(options.seeds)]
    load_average = os.getloadavg()[0]
    runs: list[Figures] = []
    for seed, real in enumerate(configs):
        runs.append(run_seed(real, None if own.out is None else own.out / f"seed-{seed}"))
        options.console.print(f"seed {seed}: {runs[-1]['num_updates']} updates")
    return {
        "backend": own.backend,
        **{name: mean(run[name] for run in runs) for name in AVERAGED},
        **{name: sum(run[name] for run in runs) for name in SUMMED},
        **mean_checks(runs),
        "runs": runs,
        "load_average": round(load_average, 2),
        "config": sizes(configs[0]),
    }


def sizes(real: Config) -> Figures:
    """Return the sizes of a real run."""
    return {
        "minutes": 60.0 * real.run.hours,
        "num_envs": real.rollout.num_envs,
        "engines": real.rollout.num_workers,
        "max_images": real.policy.max_images,
    }


AVERAGED = ("success_rate_first", "success_rate_last", "sync_seconds_p50")
SUMMED = ("failed_requests", "lost_requests")


def require_vllm() -> None:
    """Refuse to begin where no engine can be started.

    Raises:
        ConfigError: It says what is missing.
    """
    import dartsim.real.engines.backend  # noqa: F401 - raises which extra is missing

    if not os.environ.get(VLLM_PYTHON):
        raise ConfigError(
            f"real engines need the interpreter of an environment with vLLM: set {VLLM_PYTHON} "
            "(see docs/desktops-and-engines.md)"
        )


def mean_checks(runs: Sequence[Figures]) -> Figures:
    """Return measured beside predicted, each the mean of the runs that have it."""

    def averages(which: str) -> dict[str, float | None]:
        values = {name: [run[which][name] for run in runs if run[which][name] is not None] for name in COMPARED}
        return {name: mean(known) if known else None for name, known in values.items()}

    outside = sorted({name for run in runs for name in run["outside"]})
    return {**compare(averages("measured"), averages("predicted")), "outside": outside}


def prediction_found(figures: Figures) -> str:
    """Say which figure the twin predicts worst, and which of the run's figures are outside the twins' interval."""
    name, error = max(figures["relative_error"].items(), key=lambda item: abs(item[1] or 0.0))
    worst = f"largest error of a figure {abs(error or 0.0):.1%} ({name.replace('_', ' ')})"
    if "outside" not in figures:  # recorded with one twin
        return worst
    outside = ", ".join(each.replace("_", " ") for each in figures["outside"])
    return f"{worst}; outside the 95 % interval of {TWINS} twins: {outside or 'none'}"


def loop_found(figures: Figures) -> str:
    """Say in one sentence how well a real run was predicted."""
    sizes = figures["config"]
    minutes = f"{sizes['minutes']:.3g} minutes"
    worst = prediction_found(figures)
    if figures["backend"] == "vllm":
        run = f"Mock desktops and {sizes['engines']} vLLM engines, {minutes}"
        more = (
            f"; success on held-out tasks {figures['success_rate_first']:.1%} → {figures['success_rate_last']:.1%}, "
            f"{figures['lost_requests']} requests lost, a weight sync {figures['sync_seconds_p50']:.2f} s (median)"
        )
    else:
        run, more = f"{sizes['num_envs']} desktops of our image, {minutes}", ""
    return f"{run}: {worst}{more}. Recorded at commit {short_commit(figures)}.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's own options."""
    parser.add_argument("--backend", choices=BACKENDS, default="vllm", help="default: vllm")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the run")
    parser.add_argument("--minutes", type=float, help="length of the real run")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the run directories of both runs")


STUDY = Experiment(
    name="real_loop",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"real-loop-found": loop_found},
    add_arguments=add_arguments,
    record_as=lambda own: "real_loop" if own.backend == "vllm" else f"real_loop_{own.backend}",
)
DESKTOP_STUDY = replace(STUDY, tables={"desktop-twin-found": loop_found}, recorded_as="real_loop_desktop")
"""The recorded run on real containers."""

if __name__ == "__main__":
    STUDY.run()
