"""The presets of real OSWorld on modeled clusters: what they train, and the GPU hours that 75,000 turns would take.

python -m experiments.osworld_twins            eight clusters, 12 simulated hours each: some six minutes on two cores
python -m experiments.osworld_twins --quick    the same keys, from two hours of the two smallest
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dartsim.lab.virtual import modeled_twin
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments.arms import Arm, arm_study, mean
from experiments.charts import bars, drawing, legend_below
from experiments.study import Figures, StudyPicture

HEADLINE_TURNS = 75_000
"""Turns that DART's headline run trained on, in 82 versions, while its success rate rose from .55 to .66."""


def run_twin(arm: Arm, seed: int) -> Figures:
    """Run the virtual twin of a preset and return its figures."""
    result = run_prepared(prepare(modeled_twin(arm.cluster(seed).config)))
    return {**result.figures, "event_hash": result.event_hash}


def gpus(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return the GPUs of an arm."""
    return {"gpus": arm.keys["gpus"]}


@drawing(3.6)
def twins_picture(figure: Any, recorded: Figures) -> None:
    """Turns a minute and GPU hours of every cluster."""
    arms = recorded["arms"]
    names = [arm["arm"] for arm in arms]
    turns = {which: [mean(arm, f"{which}_turns_per_minute") for arm in arms] for which in ("trained", "generated")}
    hours = [arm["gpus"] * HEADLINE_TURNS / rate / 60.0 for arm, rate in zip(arms, turns["trained"], strict=True)]
    left, right = figure.subplots(1, 2)
    bars(left, "turns a minute", names, turns)
    bars(right, f"GPU hours for {HEADLINE_TURNS:,} trained turns", names, {"GPU hours": hours}, 2)
    legend_below(figure)


STUDY = arm_study(
    "osworld_twins",
    run=run_twin,
    more=gpus,
    pictures={"osworld-twins": StudyPicture("Turns a minute and GPU hours of the presets of OSWorld", twins_picture)},
)

if __name__ == "__main__":
    STUDY.run()
