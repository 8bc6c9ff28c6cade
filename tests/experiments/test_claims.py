"""The published claims in small: each run again, its rules, tables and pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.arms import arms_of, mean, pick, studies
from experiments.claims import definition_rows, run_claim, verdicts
from experiments.study import recorded


def run(hours, **wanted):
    """Run the arm with these names or keys."""
    (arm,) = (
        arm
        for arm in arms_of(studies()["claims"])
        if {"family": arm.family, **arm.keys, **arm.names}.items() >= wanted.items()
    )
    return run_claim(replace(arm, hours=hours), 0)


def test_decoupling_makes_the_throughput_and_the_utilization_of_darts_table():
    coupled, dart = run(2.5, family="ladder", arm="coupled"), run(1.5, arm="DART")
    assert dart["trained_turns_per_minute"] > 1.3 * coupled["trained_turns_per_minute"]
    assert dart["env_utilization"] > 4.0 * coupled["env_utilization"]
    assert dart["gpu_utilization"] > 5.0 * coupled["gpu_utilization"], "not the published 1.6x"
    assert coupled["hybrid_gpus_utilization"] > coupled["gpu_utilization_rollout_phase"] > coupled["gpu_utilization"]


def test_interrupted_replies_are_more_and_kept_ones_most():
    modes = ("waited for", "interrupted, cache lost", "paused, cache kept")
    runs = [run(0.6, series="replies of 8,000 tokens", arm=mode, value=90.0) for mode in modes]
    waited, interrupted, kept = (one["gpu_peak_share"] for one in runs)
    assert waited < interrupted < kept
    assert runs[0]["num_updates"] < runs[1]["num_updates"]


def test_admission_keeps_the_bound_and_drops_nothing():
    runs = [run(3.0, series="dart, by admission", value=bound) for bound in (0, 1)]
    assert all(not one["over_bound_share"] and not one["stale_share"] for one in runs)
    assert runs[1]["trained_turns_per_minute"] > 1.3 * runs[0]["trained_turns_per_minute"]
    assert run(1.5, series="dart, by dropping", value=0)["stale_share"] > 0.05


def test_only_a_global_sync_stops_the_pool():
    rolling, at_once = (run(1.0, series=f"dart, {scope} restart", value=300.0) for scope in ("rolling", "global"))
    assert rolling["stopped_share"] == 0.0
    assert at_once["stopped_share"] > 0.1
    assert rolling["generated_turns_per_minute"] > at_once["generated_turns_per_minute"]


def test_the_ladder_ends_at_the_measured_preset():
    arms = arms_of(studies()["claims"])
    top = [arm for arm in arms if arm.family == "ladder"][-1].cluster(0).config.model_dump()
    dart = next(arm for arm in arms if arm.names.get("arm") == "DART").cluster(0).config.model_dump()
    assert {key for key in dart if dart[key] != top[key]} <= {"preset", "about"}


@pytest.fixture
def arms():
    return recorded("claims")["arms"]


def judged(arms):
    return {one["statement"]: one["agrees"] for one in verdicts(arms)}


def test_verdicts_follow_the_recorded_figures(arms):
    """A figure that is changed changes the verdict on it, and no other."""
    before = judged(arms)
    assert before["DART over coupled: trained turns"] is True
    assert before["`dart`: admission alone holds the bound"] is True
    pick(arms, family="left out", arm="DART")["figures"]["trained_turns_per_minute"]["mean"] *= 2.0
    pick(arms, series="dart, by admission", value=1)["figures"]["over_bound_share"]["mean"] = 0.03
    after = judged(arms)
    assert {statement for statement in before if before[statement] != after[statement]} == {
        "DART over coupled: trained turns",
        "`dart`: admission alone holds the bound",
    }


def test_a_claim_about_an_arm_that_was_not_run_is_an_error(arms):
    with pytest.raises(LookupError):
        verdicts([arm for arm in arms if arm["family"] != "ladder"])


def test_the_fitted_definition_meets_the_baseline_by_construction(arms):
    _, rows = definition_rows({"arms": arms})
    assert [row[1] for row in rows if "fitted" in row[0] or row[0] == "as published"] == ["29.6%", "29.6%"]
    ratio = mean(pick(arms, family="left out", arm="DART"), "gpu_utilization") / mean(
        pick(arms, family="ladder", arm="coupled"), "gpu_utilization"
    )
    assert rows[1][-1] == f"{ratio:.2f}x"
