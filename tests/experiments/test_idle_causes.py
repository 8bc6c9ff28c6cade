"""Idle shares and timelines of schedulers, in small."""

from __future__ import annotations

import json

import pytest

from dartsim.observe.states import DesktopState, EngineState, TrainerState
from dartsim.observe.timeline import Stay
from experiments import idle_causes
from experiments.idle_causes import CAUSES, MINUTES, PHASE_OF, phases
from experiments.study import Options, recorded


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """The study for some minutes of two schedulers."""
    target = tmp_path_factory.mktemp("idle_causes") / "f.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_causes, "QUICK_HOURS", 0.3)
        patch.setattr(idle_causes, "MINUTES", 10.0)
        patch.setattr(idle_causes, "SHOWN", ("coupled", "dartsim"))
        patch.setattr(Options, "sweep", lambda self, function, runs: [function(run.spec) for run in runs])
        idle_causes.STUDY.run(["--quick", "--json", str(target)])
    return json.loads(target.read_text())


def test_work_and_idle_causes_add_up_to_all_time(figures):
    for own in figures["schedulers"].values():
        for shares in own["idle"].values():
            assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)


def test_a_timeline_has_no_gaps_and_its_figure_can_be_drawn(figures):
    for own in figures["schedulers"].values():
        for track in (*own["timeline"]["trainer"], *own["timeline"]["desktops"]):
            ends = [start + length for _, start, length in track]
            assert [start for _, start, _ in track] == pytest.approx([0.0, *ends[:-1]], abs=0.11)
            assert ends[-1] == pytest.approx(600.0, abs=0.2)
    pytest.importorskip("matplotlib")
    for picture in idle_causes.STUDY.pictures.values():
        assert "coupled" in picture.draw(figures)


def test_every_state_has_a_phase_and_short_stays_belong_to_the_one_before():
    assert set(PHASE_OF["desktops"]) == set(map(int, DesktopState))
    assert set(PHASE_OF["trainer"]) == set(map(int, TrainerState))
    acting, closing, starting = DesktopState.ACTING, DesktopState.CLOSING, DesktopState.STARTING
    stays = [Stay(acting, 0.0, 20.0), Stay(closing, 20.0, 23.0), Stay(acting, 23.0, 30.0), Stay(starting, 30.0, 50.0)]
    assert phases(stays, 10.0, "desktops") == [["attempt", 0.0, 20.0], ["overhead", 20.0, 20.0]]


def test_every_recorded_cause_is_drawn():
    drawn = {cause for _, causes in CAUSES.values() for cause in causes}
    known = recorded("idle_causes")
    found = {cause for own in known["schedulers"].values() for shares in own["idle"].values() for cause in shares}
    assert found <= drawn
    assert known["config"]["minutes"] == MINUTES
    assert EngineState.LOADING.info.cause in drawn
