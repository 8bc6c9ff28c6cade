"""What it does to learning to drop history screenshots in blocks, which is what keeps a prefix cache useful.

python -m experiments.history_images            five seeds, 15 runs: a quarter of an hour of CPU time, on two cores
python -m experiments.history_images --quick    one seed, cut short: the same keys

The model and the tasks are those of the ablation, without any of its parts; the arms differ in what a prompt shows, and
each starts from a base model that was shown such prompts. Finished runs are kept in runs/experiments.
"""

from __future__ import annotations

from dartsim.config import Config
from experiments.ablation import config
from experiments.learning import learning_sweep, of_arm, paired
from experiments.learning_suites import SUITES
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


def measure(options: Options) -> Figures:
    """Make every arm with every seed."""
    made = [(arm, arm_config(arm, seed, quick=options.quick)) for seed in range(options.seeds) for arm in ARMS]
    wanted = [SUITES["locks"].run(arm, own, quick=options.quick, base=own) for arm, own in made]
    runs = learning_sweep(options, "history_images", wanted)
    return {"runs": runs, "cpu_seconds": sum(run["cpu_seconds"] for run in runs), "config": {"arms": ARMS}}


def arms_line(figures: Figures) -> str:
    """Success by how history screenshots are dropped."""
    rates = {arm: [run["success_rate_final"] for run in of_arm(figures["runs"], arm)] for arm in ARMS}
    arms = ", ".join("`{}` {:.0%} ± {:.0%}".format(arm, *interval(own)) for arm, own in rates.items())
    difference = paired(figures["runs"], "block", "slide", "simulated_hours")
    return (
        f"Success: {arms}. `block` over `slide`, seed by seed: {difference['mean']:+.1%} ± "
        f"{difference['half_width']:.1%} ({len(figures['seeds'])} seeds).\n"
    )


STUDY = Experiment(
    name="history_images", about=str(__doc__), measure=measure, seeds=5, tables={"history-images": arms_line}
)

if __name__ == "__main__":
    STUDY.run()
