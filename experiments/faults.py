"""What faults cost: throughput kept, and time to recover, by preset, under each profile of faults.

python -m experiments.faults            eight presets, one seed, 8 hours: two minutes on two cores
python -m experiments.faults --quick    the same keys for two presets
"""

from __future__ import annotations

from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.faults import PROFILES
from experiments.arms import Arm, arm_study, mean, pick
from experiments.charts import grouped
from experiments.study import Figures, Rows, rows_of

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


def cost_rows(recorded: Figures) -> Rows:
    """Throughput that presets keep under each profile, and minutes until they recover."""
    columns = {"preset": "`{preset}`", **{f"kept under `{profile}`": f"{{{profile}:.0%}}" for profile in PROFILES}}
    columns |= {"minutes from the end of hostile faults to the next update": "{recovery:.1f}"}
    found = []
    for preset, arms in grouped(recorded["arms"], "preset").items():
        turns = {
            profile: mean(pick(arms, profile=profile), "trained_turns_per_minute") for profile in ("none", *PROFILES)
        }
        kept = {profile: turns[profile] / turns["none"] for profile in PROFILES}
        recovery = mean(pick(arms, profile="healed"), "recovery_minutes")
        found.append({"preset": preset, **kept, "recovery": recovery})
    return rows_of(columns, found)


STUDY = arm_study(
    "faults",
    run=run_faulty,
    tables={"fault-costs": cost_rows},
)

if __name__ == "__main__":
    STUDY.run()
