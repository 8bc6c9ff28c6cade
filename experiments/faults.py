"""What faults cost: throughput kept, and time to recover, by preset, under each profile of faults.

python -m experiments.faults            eight presets, one seed, 8 hours: two minutes on two cores
python -m experiments.faults --quick    the same keys for two presets
"""

from __future__ import annotations

from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from dartsim.sim.faults import PROFILES
from experiments.arms import Arm, arm_study, mean, pick
from experiments.charts import Panel, Series, draw, grouped
from experiments.study import Figures, StudyPicture

NOT_FAULTS = ("run ended", "withdrawn")
"""Causes of masked attempts that are no faults."""


def run_faulty(arm: Arm, seed: int) -> Figures:
    """Run a preset under a profile of faults.

    ``recovery_minutes`` is the time from the middle of the run, when the faults of ``healed`` end, to the next update.
    """
    result = run_simulation(prepare(arm.cluster(seed).config))
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


def costs_picture(recorded: Figures) -> str:
    """Bars: throughput that presets keep under each profile, and minutes until they recover."""
    presets = grouped(recorded["arms"], "preset")
    ticks, xs, none = list(enumerate(presets)), range(len(presets)), [None] * len(presets)

    def turns(arms: list[Figures], profile: str) -> float:
        return mean(pick(arms, profile=profile), "trained_turns_per_minute")

    kept = [
        Series(profile, xs, [100.0 * turns(arms, profile) / turns(arms, "none") for arms in presets.values()], none, at)
        for at, profile in enumerate(PROFILES)
    ]
    minutes = [mean(pick(arms, profile="healed"), "recovery_minutes") for arms in presets.values()]
    recovery = Series("after hostile faults end", xs, minutes, none, len(PROFILES))
    return draw(
        [
            Panel("trained turns kept under faults, %", "", kept, ticks, bars=True),
            Panel("minutes until the next update", "", [recovery], ticks, bars=True),
        ],
        tilt=True,
    )


STUDY = arm_study(
    "faults",
    run=run_faulty,
    pictures={
        "fault-costs": StudyPicture("Throughput kept under faults, and time to recover, by preset", costs_picture)
    },
)

if __name__ == "__main__":
    STUDY.run()
