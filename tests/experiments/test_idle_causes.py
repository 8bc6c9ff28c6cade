"""Idle shares and timelines of schedulers, in small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dartsim.observe.states import DesktopState, EngineState, TrainerState
from dartsim.observe.timeline import Stay
from experiments.arms import arms_of, studies
from experiments.idle_causes import CAUSES, MINUTES, PHASE_OF, phases, run_scheduler
from experiments.study import recorded


@pytest.fixture(scope="module")
def run():
    """An hour of one scheduler."""
    arm = next(arm for arm in arms_of(studies()["idle_causes"]) if arm.preset == "dartsim")
    return run_scheduler(replace(arm, hours=0.75), 0)


def test_work_and_idle_causes_add_up_to_all_time(run):
    for shares in run["idle"].values():
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)


def test_a_timeline_has_no_gaps(run):
    for track in (*run["timeline"]["trainer"], *run["timeline"]["desktops"]):
        ends = [start + length for _, start, length in track]
        assert [start for _, start, _ in track] == pytest.approx([0.0, *ends[:-1]], abs=0.11)
        assert ends[-1] == pytest.approx(60.0 * MINUTES, abs=0.2)


def test_every_state_has_a_phase_and_short_stays_belong_to_the_one_before():
    assert set(PHASE_OF["desktops"]) == set(map(int, DesktopState))
    assert set(PHASE_OF["trainer"]) == set(map(int, TrainerState))
    acting, closing, starting = DesktopState.ACTING, DesktopState.CLOSING, DesktopState.STARTING
    stays = [Stay(acting, 0.0, 20.0), Stay(closing, 20.0, 23.0), Stay(acting, 23.0, 30.0), Stay(starting, 30.0, 50.0)]
    assert phases(stays, 10.0, "desktops") == [["attempt", 0.0, 20.0], ["overhead", 20.0, 20.0]]


def test_every_recorded_cause_is_drawn():
    drawn = {cause for _, causes in CAUSES.values() for cause in causes}
    known = recorded("idle_causes")
    found = {cause for arm in known["arms"] for shares in arm["idle"].values() for cause in shares}
    assert found <= drawn
    assert EngineState.LOADING.info.cause in drawn
