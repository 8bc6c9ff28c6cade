"""The published claims in small: each run again, its rules, tables and pictures."""

from __future__ import annotations

import pytest

from experiments.arms import arms_of, mean, pick, studies
from experiments.claims import definition_rows, verdicts
from experiments.study import recorded


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
