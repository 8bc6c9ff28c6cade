"""What it does to learning to drop history screenshots in blocks, which is what keeps a prefix cache useful.

python -m experiments.history_images            five seeds, 15 runs: a quarter of an hour of CPU time, on two cores
python -m experiments.history_images --quick    one seed, cut short: the same keys

The model and the tasks are those of the ablation, without any of its parts; the arms differ in what a prompt shows, and
each starts from a base model that was shown such prompts. Finished runs are kept in runs/experiments.
"""

from __future__ import annotations

from dartsim.config import Config
from experiments.ablation import config
from experiments.learning_study import learning_sweep, of_arm, paired
from experiments.learning_suites import SUITES, LearningRun
from experiments.study import Experiment, Figures, Options, interval

ARMS = {
    "slide": {"max_images": 4, "max_texts": 6},
    "block": {"max_images": 4, "max_texts": 6, "images_after_cut": 2},
    "one image": {"max_images": 1, "max_texts": 6},
}
"""``slide``: the oldest goes at every turn (DART). ``block``: grows to four, is cut to two. Attempts have six turns."""


def arm_config(arm: str, seed: int, *, quick: bool) -> Config:
    """Return the configuration of an arm."""
    return config("decoupled", seed, quick=quick).replace(policy=ARMS[arm])


def _run(arm: str, seed: int, *, quick: bool) -> LearningRun:
    made = arm_config(arm, seed, quick=quick)
    return SUITES["locks"].run(arm, made, quick=quick, base=made)


def measure(options: Options) -> Figures:
    """Make every arm with every seed."""
    wanted = [_run(arm, seed, quick=options.quick) for seed in range(options.seeds) for arm in ARMS]
    runs = learning_sweep(options, "history_images", wanted)
    difference = paired(runs, "block", "slide", "simulated_hours")
    return {
        "runs": runs,
        "arms": {arm: _summed(of_arm(runs, arm)) for arm in ARMS},
        "block_less_slide": {"mean": difference["mean"], "ci95": difference["half_width"]},
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {arm: arm_config(arm, 0, quick=options.quick).model_dump(mode="json") for arm in ARMS},
    }


def _summed(runs: list[Figures]) -> Figures:
    names = ("success_rate_initial", "success_rate_final", "turns", "num_updates")
    return {name: dict(zip(("mean", "ci95"), interval([run[name] for run in runs]), strict=True)) for name in names}


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
