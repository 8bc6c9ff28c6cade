"""The speed of the laboratory: simulated hours a second by size of the cluster, and trials of a study a minute.

``python -m experiments.lab_speed``. Each cluster is measured in a process of its own, as jobs of the laboratory are run
(nothing stored, no segments kept); the study runs as ``dartsim tune`` does, on as many cores as are asked for.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from dartsim.config import load
from dartsim.lab.jobs import Prices, simulated
from dartsim.lab.space import read_space
from dartsim.lab.study import Study
from dartsim.lab.study_spec import StudySpec, read_objective
from dartsim.lab.sweep import executor_for
from dartsim.lab.virtual import as_virtual
from experiments.isolated import isolated, peak_rss_mb
from experiments.speed import PRESET, configuration
from experiments.study import Experiment, Figures, Options

FULL_HOURS = {40: 12.0, 200: 2.0, 1_000: 0.5, 5_000: 0.25, 10_000: 0.25}
"""Simulated hours by number of desktops."""
QUICK_HOURS = {40: 0.5, 200: 0.25, 1_000: 0.06, 10_000: 0.03}
CORES = 2
SPACE = "rollout.num_envs=20..60,rollout.sync.mode=drain|keep|restart,curation.batch.min_groups=2..8"


def one_size(num_envs: int, hours: float, seed: int) -> Figures:
    """Simulate a cluster as a job of the laboratory and return what it took."""
    config = as_virtual(configuration(num_envs, hours, seed=seed))
    started = time.process_time()
    figures = simulated(config, Prices())
    seconds = time.process_time() - started
    turns = figures["generated_turns_per_minute"] * figures["minutes"]  # of the measured part of the run
    turns *= figures["simulated_hours"] * 60.0 / figures["minutes"]
    return {
        "cpu_seconds": seconds,
        "simulated_hours_per_second": hours / seconds,
        "cpu_us_per_turn": seconds / turns * 1e6,
        "peak_rss_mb": peak_rss_mb(),
    }


def one_study(num_trials: int, hours: float, seed: int) -> Figures:
    """Run a study on two cores and return how long it took."""
    base = load(preset_name=PRESET, overrides=[f"run.hours={hours}"])
    spec = StudySpec(
        base=base, space=read_space(SPACE), objectives=(read_objective("trained_turns_per_minute"),), seed=seed
    )
    with tempfile.TemporaryDirectory() as folder, executor_for(CORES) as executor:
        study = Study(spec, Path(folder) / "study.db")
        started = time.perf_counter()
        study.run(num_trials, executor)
        seconds = time.perf_counter() - started
        states = [trial.state for trial in study.trials()]
    return {
        "trials_per_minute": 60.0 * num_trials / seconds,
        "wall_seconds": seconds,
        "states": {state: states.count(state) for state in sorted(set(states))},
    }


def measure(options: Options) -> Figures:
    """Measure every size, then the study."""
    hours = QUICK_HOURS if options.quick else FULL_HOURS
    sizes = []
    for num_envs, length in hours.items():
        options.console.print(f"{num_envs:,} desktops, {length:g} simulated hours …")
        runs = [isolated(one_size, num_envs, length, seed) for seed in range(options.seeds)]
        sizes.append(
            {
                "num_envs": num_envs,
                "simulated_hours": length,
                **{name: round(median(run[name] for run in runs), 4) for name in runs[0]},
            }
        )
    num_trials, length = (16, 0.5) if options.quick else (64, 4.0)
    options.console.print(f"a study of {num_trials} trials, {length:g} simulated hours each, on {CORES} cores …")
    studies = [one_study(num_trials, length, seed) for seed in range(options.seeds)]
    return {
        "sizes": sizes,
        "study": {
            "num_trials": num_trials,
            "simulated_hours": length,
            "cores": CORES,
            "trials_per_minute": round(median(study["trials_per_minute"] for study in studies), 1),
            "states": [study["states"] for study in studies],
        },
        "config": {"preset": PRESET, "space": SPACE},
    }


def summary(figures: Figures) -> str:
    """Speed of the lab by size of the cluster, and of a study, in words."""
    sizes = "; ".join(
        f"{row['num_envs']:,} desktops: {row['simulated_hours_per_second']:.3g}, {row['peak_rss_mb']:.0f} MB"
        for row in (figures["sizes"][0], figures["sizes"][-1])
    )
    study = figures["study"]
    return (
        f"Simulated hours per CPU second, and memory: {sizes}. A study: {study['trials_per_minute']:g} trials a minute "
        f"on {study['cores']} cores, of {study['simulated_hours']:g} simulated hours each at most.\n"
    )


STUDY = Experiment(name="lab_speed", about=str(__doc__), measure=measure, tables={"lab-speed": summary})

if __name__ == "__main__":
    STUDY.run()
