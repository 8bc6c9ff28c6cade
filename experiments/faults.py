"""What faults cost: throughput kept, and time to recover, by preset, under each profile of faults.

python -m experiments.faults            eight presets, one seed, 8 hours: two minutes on two cores
python -m experiments.faults --quick    the same keys for two presets
"""

from __future__ import annotations

from typing import Any

from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.faults import PROFILES
from experiments.arms import Arm, arm_study, mean, pick
from experiments.charts import bars, drawing, grouped, legend_below
from experiments.study import Figures, StudyPicture

NOT_FAULTS = ("run ended", "withdrawn")
"""Causes of masked attempts that are no faults."""


def run_faulty(arm: Arm, seed: int) -> Figures:
    """Run a preset under a profile of faults.

    ``recovery_minutes`` is the time from the middle of the run, when the faults of ``healed`` end, to the next update.
    """
    result = run_prepared(prepare(arm.cluster(seed).config))
    figures, healed = result.figures, arm.hours * 1800.0
    masked = sum(number for cause, number in figures["causes"].items() if cause not in NOT_FAULTS)
    first = next((update.time - healed for update in result.recorder.updates if update.time > healed), None)
    return {
        "trained_turns_per_minute": figures["trained_turns_per_minute"],
        "masked_share": masked / figures["attempts"],
        "updates": len(result.recorder.updates),
        "recovery_minutes": None if first is None else first / 60.0,
        "event_hash": result.event_hash,
    }


@drawing(3.6)
def costs_picture(figure: Any, recorded: Figures) -> None:
    """Throughput that presets keep under each profile, and minutes until they recover."""
    presets = grouped(recorded["arms"], "preset")

    def turns(arms: list[Figures], profile: str) -> float:
        return mean(pick(arms, profile=profile), "trained_turns_per_minute")

    kept = {
        profile: [100.0 * turns(arms, profile) / turns(arms, "none") for arms in presets.values()]
        for profile in PROFILES
    }
    minutes = [mean(pick(arms, profile="healed"), "recovery_minutes") for arms in presets.values()]
    left, right = figure.subplots(1, 2)
    bars(left, "trained turns kept under faults, %", list(presets), kept)
    bars(right, "minutes until the next update", list(presets), {"after hostile faults end": minutes}, len(kept))
    legend_below(figure)


STUDY = arm_study(
    "faults",
    run=run_faulty,
    pictures={
        "fault-costs": StudyPicture("Throughput kept under faults, and time to recover, by preset", costs_picture)
    },
)

if __name__ == "__main__":
    STUDY.run()
