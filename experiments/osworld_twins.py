"""The presets of real OSWorld on modeled clusters: what they train, and the GPU hours that 75,000 turns would take.

python -m experiments.osworld_twins            eight clusters, 12 simulated hours each: some six minutes on two cores
python -m experiments.osworld_twins --quick    the same keys, from two hours of the two smallest
"""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.lab.virtual import modeled_twin
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments.arms import Arm, arm_study, mean
from experiments.study import Figures, Rows, rows_of

HEADLINE_TURNS = 75_000
"""Turns that DART's headline run trained on, in 82 versions, while its success rate rose from .55 to .66."""


def run_twin(arm: Arm, seed: int) -> Figures:
    """Run the virtual twin of a preset and return its figures."""
    result = run_prepared(prepare(modeled_twin(arm.cluster(seed).config)))
    return {**result.figures, "event_hash": result.event_hash}


def gpus(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return the GPUs of an arm."""
    return {"gpus": arm.keys["gpus"]}


def twins_table(recorded: Figures) -> Rows:
    """Return turns a minute and GPU hours of every cluster."""
    columns = {
        "preset of OSWorld, desktops": "{arm}",
        "GPUs": "{gpus}",
        "generated turns/min": "{figures[generated_turns_per_minute][mean]:.0f}",
        "trained turns/min": "{figures[trained_turns_per_minute][mean]:.0f}",
        f"GPU hours for {HEADLINE_TURNS:,} trained turns": "{hours:,.0f}",
    }
    hours = (arm["gpus"] * HEADLINE_TURNS / mean(arm, "trained_turns_per_minute") / 60.0 for arm in recorded["arms"])
    return rows_of(columns, [{**arm, "hours": each} for arm, each in zip(recorded["arms"], hours, strict=True)])


STUDY = arm_study(
    "osworld_twins",
    run=run_twin,
    more=gpus,
    tables={"osworld-twins-table": twins_table},
)

if __name__ == "__main__":
    STUDY.run()
