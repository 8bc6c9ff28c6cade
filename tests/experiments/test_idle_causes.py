"""Idle shares of schedulers, in small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dartsim.observe.states import EngineState
from experiments.arms import arms_of, studies
from experiments.idle_causes import CAUSES, run_scheduler
from experiments.study import recorded


@pytest.fixture(scope="module")
def run():
    """An hour of one scheduler."""
    arm = next(arm for arm in arms_of(studies()["idle_causes"]) if arm.preset == "dartsim")
    return run_scheduler(replace(arm, hours=0.75), 0)


def test_work_and_idle_causes_add_up_to_all_time(run):
    for shares in run["idle"].values():
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)


def test_every_recorded_cause_is_drawn():
    drawn = {cause for _, causes in CAUSES.values() for cause in causes}
    known = recorded("idle_causes")
    found = {cause for arm in known["arms"] for shares in arm["idle"].values() for cause in shares}
    assert found <= drawn
    assert EngineState.LOADING.info.cause in drawn
