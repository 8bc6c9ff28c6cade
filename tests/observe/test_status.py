"""Every state of every component has its words, and components are described with their particulars."""

from __future__ import annotations

from dartsim.observe import ComponentStatus, DesktopState, EngineState, Recorder, StatusSource, TrainerState
from dartsim.observe.states import AT_WORK, CAUSES, POPULATIONS
from dartsim.observe.status import waiting, waiting_text


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Particulars(StatusSource):
    def detail(self, population, index):
        return f"slot {index} is full" if population == "desktops" else ""

    def components(self):
        return [ComponentStatus(name="store", state="open", since=0.0, waits_for="a row", woken_by="a slot")]


def test_every_state_says_what_it_is_what_it_waits_for_and_what_wakes_it():
    for population in POPULATIONS.values():
        infos = [state.info for state in population.states]
        assert len({info.label for info in infos}) == len(infos), "a name stands for one state"
        assert all(info.waits_for and info.woken_by and info.meaning and info.color for info in infos)
        assert {info.cause for info in infos} <= {AT_WORK, None, *CAUSES}


def test_components_have_their_state_since_when_and_their_particulars():
    clock = Clock()
    recorder = Recorder(clock, num_envs=2, num_engines=1)
    clock.now = 130.0
    recorder.desktops.tracks[1].enter(DesktopState.WAIT_ADMISSION)
    recorder.engines.tracks[0].enter(EngineState.LOADING)
    recorder.trainer.tracks[0].enter(TrainerState.WAIT_DATA)
    recorder.status_source = Particulars()
    clock.now = 190.0
    found = {status.name: status for status in recorder.component_statuses()}
    assert list(found) == ["slot 0", "slot 1", "engine 0", "trainer", "store"]
    assert (found["slot 1"].state, found["slot 1"].since) == ("not admitted", 30.0)
    assert found["slot 1"].detail == "slot 1 is full"
    assert found["engine 0"].waits_for == "new weights to be loaded"
    assert found["trainer"].woken_by == "a group that becomes eligible"
    text = waiting_text(waiting(status.as_json() for status in recorder.component_statuses()))
    assert "slot 0" not in text, "what is off waits for nothing"
    assert "trainer: waiting for data since 30.0 s, waits for a batch" in text
