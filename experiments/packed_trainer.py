"""Predicts what training several turns in one sequence gains on DART's cluster, with the cost of a 7B model's update.

python -m experiments.packed_trainer            three seeds, 42 runs of 12 hours: about six minutes of CPU time
python -m experiments.packed_trainer --quick    the same keys in less than one

DART's update was fitted once (0.086 s per 1,000 tokens and 270 s). Every other variant pays for its own tokens, at that
rate times its operations per token over DART's (``experiments.operations``), as longer sequences attend to more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from dartsim.config import Config
from dartsim.lab.batch_tokens import surrogate_lengths
from dartsim.lab.model_shapes import QWEN2_5_VL_7B
from dartsim.run.prepare import prepare
from experiments.arms import Arm, Cluster, arm_study, mean, run_cluster, select, studies
from experiments.charts import BLUE, GRAY, GREEN, ORANGE, drawing, label_axes, rows_axis
from experiments.operations import turn_operations
from experiments.study import Figures, StudyPicture

GPUS = 12
"""Of DART's headline run: 4 with engines, 8 of the trainer."""
DART = Cluster("dart-measured", 1.0, workload="dart")


def split(arm: Arm, seed: int) -> Cluster:
    """Return a run; the trainer's time is inversely proportional to its GPUs, but for the fixed part."""
    plain, engines = arm.cluster(seed), arm.keys["engines"]
    learner, trainer = plain.config.cluster.learner, GPUS - engines
    kilotoken = learner.kilotoken_seconds * learner.gpus / trainer * operations_ratio(plain.config)
    more = (
        f"rollout.num_workers={engines}",
        f"cluster.learner.gpus={trainer}",
        f"cluster.learner.kilotoken_seconds={kilotoken!r}",
    )
    return replace(plain, changes=(*plain.changes, *more))


def operations_ratio(config: Config) -> float:
    """Return the operations per token of an update, relative to those of DART's prompts and sequences."""
    return _operations_per_token(config) / _operations_per_token(DART.config)


def _operations_per_token(config: Config) -> float:
    prepared, packed = prepare(config), config.trainer.optimizer.pack == "trajectories"
    surrogate = config.surrogate
    rate = surrogate.mean_success or 0.0
    lengths = surrogate_lengths(surrogate, success_rate=rate, max_turns=config.rollout.max_turns)
    tokens = sum(
        each.tokens for length in lengths for each in prepared.prompts.training_sequences(length, packed=packed)
    )
    total = turn_operations(QWEN2_5_VL_7B, prepared.prompts, lengths, packed=packed).total
    return total * sum(lengths) / tokens


def run_split(arm: Arm, seed: int) -> Figures:
    """Run a variant on its split of the GPUs."""
    return run_cluster(split(arm, seed))


def parts(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return the engines, and the share of a version that is the fixed part of its update."""
    fixed = arm.cluster(0).config.cluster.learner.fixed_seconds
    version = 60.0 * fmean(run["minutes_per_version"] for run in runs)
    return {"engines": arm.keys["engines"], "fixed_share": fixed / version}


@drawing(3.4)
def packed(figure: Any, figures: Figures) -> None:
    """Trained turns per minute of the variants, and by the split of the GPUs."""
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
    published = studies()["packed_trainer"]["published"]["trained_turns_per_minute"]
    variants = select(figures["arms"], family="variants", engines=4)
    for row, arm in enumerate(variants):
        turns = arm["figures"]["trained_turns_per_minute"]
        left.barh([row], [turns["mean"]], xerr=[turns["half_width"] or 0.0], color=ORANGE if row < 2 else BLUE)
        left.annotate(f"{turns['mean']:.0f}", (turns["mean"], row), (6, 0), textcoords="offset points", va="center")
    rows_axis(left, [arm["variant"] for arm in variants])
    for line, label in ((published, "published"), (2.0 * published, "twice that")):
        left.axvline(line, color=GRAY, linestyle=":")
        left.annotate(label, (line, -0.55), (2, 0), textcoords="offset points", color=GRAY, fontsize=7)
    label_axes(left, "DART's cluster: 4 engines, 8 GPUs that train", "trained turns/min")
    for bound, color, marker in ((1, GREEN, "s"), (4, BLUE, "o")):
        own = sorted(select(figures["arms"], value=bound), key=lambda arm: int(arm["engines"]))
        means = [mean(arm, "trained_turns_per_minute") for arm in own]
        right.plot([arm["engines"] for arm in own], means, color=color, marker=marker, label=f"bound {bound}")
    right.axhline(2.0 * published, color=GRAY, linestyle=":")
    right.legend()
    label_axes(right, "12 GPUs", "engines (the others train)")


STUDY = arm_study(
    "packed_trainer",
    run=run_split,
    more=parts,
    pictures={
        "packed-trainer": StudyPicture(
            "Trained turns per minute on DART's cluster: several turns in one sequence, and the split of GPUs", packed
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
