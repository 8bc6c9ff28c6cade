"""What it does to learning to drop history screenshots in blocks, which is what keeps a prefix cache useful.

python -m experiments.history_images            five seeds, 15 runs: a quarter of an hour of CPU time, on two cores
python -m experiments.history_images --quick    one seed, cut short: the same keys

The model and the tasks are those of the ablation, without any of its parts; the arms differ in what a prompt shows.
Times are modeled alike for all three: what the cache saves is ``experiments.schedulers``'s to say.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dartsim.config import Config, from_tree, merge
from dartsim.lab.sweep import ArmRun
from experiments.ablation import config
from experiments.study import Experiment, Figures, Options, interval

ARMS: dict[str, dict[str, Any]] = {
    "slide": {"max_images": 4, "max_texts": 6},
    "block": {"max_images": 4, "max_texts": 6, "images_after_cut": 2},
    "one image": {"max_images": 1, "max_texts": 6},
}
"""``slide``: the oldest goes at every turn (DART). ``block``: grows to four, is cut to two. Attempts have six turns."""


def arm_config(arm: str, seed: int, *, quick: bool) -> Config:
    """Return the configuration of an arm."""
    base = config("decoupled", seed, quick=quick)
    return from_tree(merge(base.model_dump(mode="json"), {"policy": ARMS[arm]}))


def measure(options: Options) -> dict[str, Any]:
    """Run every arm with every seed on all cores, each from a base model that was shown the same kind of prompt."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before a worker process imports torch
    wanted = [ArmRun(arm, seed, (arm, seed, options.quick)) for seed in range(options.seeds) for arm in ARMS]
    runs = options.sweep(run_arm, wanted)
    return {
        "runs": runs,
        "arms": {arm: _summed([run for run in runs if run["arm"] == arm]) for arm in ARMS},
        "block_less_slide": _paired(runs, "block", "slide"),
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {arm: arm_config(arm, 0, quick=options.quick).model_dump(mode="json") for arm in ARMS},
    }


def run_arm(job: tuple[str, int, bool]) -> dict[str, Any]:
    """Make an arm's base model of a seed, train it, and return the figures."""
    # Imported in the worker processes only: torch takes its seconds.
    from experiments.ablation_runs import made_base, run_from

    arm, seed, quick = job
    settings = arm_config(arm, seed, quick=quick)
    with TemporaryDirectory() as folder:
        base_seconds = made_base(settings, Path(folder), quick=quick)
        found = run_from(settings, Path(folder))
    found["cpu_seconds"] += base_seconds
    return {"arm": arm, "seed": seed, **found}


def _summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("success_rate_initial", "success_rate_final", "turns", "num_updates")
    return {name: dict(zip(("mean", "ci95"), interval([run[name] for run in runs]), strict=True)) for name in names}


def _paired(runs: list[dict[str, Any]], one: str, other: str) -> dict[str, float]:
    """Return the difference of final success between two arms, seed by seed."""
    final = {(run["arm"], run["seed"]): run["success_rate_final"] for run in runs}
    differences = [final[one, seed] - final[other, seed] for arm, seed in final if arm == one]
    return dict(zip(("mean", "ci95"), interval(differences), strict=True))


def arms_line(figures: Figures) -> str:
    """Success by how history screenshots are dropped."""
    arms = ", ".join(f"`{arm}` {_of(of['success_rate_final'])}" for arm, of in figures["arms"].items())
    return (
        f"Success: {arms}. `block` over `slide`, seed by seed: {_of(figures['block_less_slide'], '+.1%')} "
        f"({len(figures['seeds'])} seeds).\n"
    )


def _of(value: Figures, form: str = ".0%") -> str:
    return f"{value['mean']:{form}} ± {value['ci95']:{form.removeprefix('+')}}"


STUDY = Experiment(
    name="history_images", about=str(__doc__), measure=measure, seeds=5, tables={"history-images": arms_line}
)

if __name__ == "__main__":
    STUDY.run()
