"""A real run, the profile that its timings give, and the same configuration in virtual time: how well does it predict?

python -m experiments.real_profile                                  the mock desktop by the machine's clock, 6 minutes
python -m experiments.real_profile --backend desktop --num-envs 8   real containers, 15 minutes; needs a Docker engine
python -m experiments.real_profile --quick                          the same keys in a minute
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from dartsim.config import Config, load
from dartsim.lab.measure import measure as measured_by
from dartsim.lab.virtual import COMPARED, TwinCheck, as_json, compare, twin
from dartsim.observe.timings import TIMINGS, read_timings
from dartsim.run.execute import execute
from experiments.study import Experiment, Figures, Options, short_commit, table

PRESETS = {"mock": "tiny", "desktop": "desktop"}
MINUTES = {"mock": 6.0, "desktop": 15.0}
QUICK_MINUTES = {"mock": 0.2, "desktop": 0.6}


def config(backend: str, num_envs: int | None, seed: int, quick: bool, minutes: float | None = None) -> Config:
    """Return the real run's configuration; it ends by time alone, so that the twin can last as long."""
    minutes = minutes or (QUICK_MINUTES if quick else MINUTES)[backend]
    changes = [
        f"backend.desktops={backend}",
        "backend.workers=local",
        "backend.learner=local",
        f"run.hours={minutes / 60.0}",
        f"run.seed={seed}",
        "run.updates=none",
        "run.target_success=none",
        "recorder.max_segments=0",
    ]
    if num_envs is not None:
        changes.append(f"rollout.num_envs={num_envs}")
    batch = "curation.batch"
    if quick and backend == "mock":  # batches that fill in time, and short evaluations before and after the run
        changes += [f"{batch}.min_groups=2", f"{batch}.max_groups=2", "tasks.held_out=16"]
    elif quick:
        changes += [f"{batch}.min_groups=1", f"{batch}.max_groups=1", "curation.groups.drop_all_failed=false"]
    return load(preset_name=PRESETS[backend], overrides=changes)


def run_seed(real: Config) -> Figures:
    """Run for real, measure, run the twin; return both runs' figures and what was measured."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "real"
        done, _ = execute(real, path)
        entries = read_timings(path)
        measured = measured_by(real, entries)
        virtual = twin(real, measured, done.summary, path / TIMINGS)
        predicted, _ = execute(virtual, Path(folder) / "twin")
        return {
            "seed": real.run.seed,
            **as_json(compare(done.summary, predicted.summary)),
            "success_rate_first": done.summary["success_rate_initial"],
            "success_rate_last": done.summary["success_rate_final"],
            "num_updates": done.summary["total_updates"],
            "sync_seconds_p50": next(row.median for row in measured.rows if row.what == "worker/load"),
            "timings": [asdict(row) for row in measured.rows],
            "settings": measured.settings,
            "notes": list(measured.notes),
        }


def measure(options: Options, *, backend: str, num_envs: int | None, minutes: float | None = None) -> Figures:
    """Run all seeds, one after the other: a real run needs the machine for itself."""
    runs, load = [], os.getloadavg()[0]
    for seed in range(options.seeds):
        runs.append(run_seed(config(backend, num_envs, seed, options.quick, minutes)))
        options.console.print(f"seed {seed}: {runs[-1]['num_updates']} updates")
    return {
        "backend": backend,
        **as_json(mean_checks(runs)),
        "runs": runs,
        "load_average": round(load, 2),
        "config": config(backend, num_envs, 0, options.quick, minutes).model_dump(mode="json"),
    }


def mean_checks(runs: Sequence[Figures]) -> list[TwinCheck]:
    """Return measured beside predicted, each the mean of the runs that have it."""
    return [TwinCheck(name, _mean(runs, "measured", name), _mean(runs, "predicted", name)) for name in COMPARED]


def _mean(runs: Sequence[Figures], which: str, name: str) -> float | None:
    values = [run[which][name] for run in runs if run[which][name] is not None]
    return mean(values) if values else None


def twin_table(figures: Figures) -> str:
    """A real run, measured and predicted."""
    rows = []
    for name, measured in figures["measured"].items():
        predicted, error = figures["predicted"][name], figures["relative_error"][name]
        cells = ["–" if value is None else f"{value:.4g}" for value in (measured, predicted)]
        rows.append([name.replace("_", " "), *cells, "–" if error is None else f"{error:+.1%}"])
    return table(["figure", "measured", "predicted", "error"], rows) + "\n"


def desktop_table(figures: Figures) -> str:
    """A run on real desktops, measured and predicted."""
    settings = figures["config"]
    about = (
        f"{settings['rollout']['num_envs']} desktops, {60.0 * settings['run']['hours']:.3g} minutes, "
        f"{figures['runs'][0]['num_updates']} updates. "
        f"Recorded at commit {short_commit(figures)}, "
        f"load {figures['load_average']:.1f} at its begin.\n"
    )
    return twin_table(figures) + about


STUDY = Experiment(
    name="real_profile",
    about=str(__doc__),
    measure=partial(measure, backend="mock", num_envs=None),
    seeds=1,
    tables={"desktop-twin": desktop_table},
    recorded_as="real_profile_desktop",
)


def main(argv: Sequence[str] | None = None) -> Figures:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--backend", choices=sorted(PRESETS), default="mock")
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--minutes", type=float)
    own, rest = parser.parse_known_args(argv)
    num_envs = 8 if own.backend == "desktop" and own.num_envs is None else own.num_envs
    study = replace(
        STUDY,
        measure=partial(measure, backend=own.backend, num_envs=num_envs, minutes=own.minutes),
        recorded_as="real_profile" if own.backend == "mock" else f"real_profile_{own.backend}",
    )
    return study.run(rest)


if __name__ == "__main__":
    main()
