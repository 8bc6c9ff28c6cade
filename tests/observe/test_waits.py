"""Every state of every part has words, and parts are told with their particulars."""

from __future__ import annotations

import pytest

from dartsim.observe import DesktopState, Part, Recorder, TrainerState, WorkerState, parts
from dartsim.observe.alarm import hours
from dartsim.observe.waits import WORDS, told


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_every_state_says_what_it_waits_for_and_what_wakes_it():
    recorder = Recorder(Clock(), num_envs=1, num_workers=1)
    for population in recorder.populations():
        assert set(WORDS[population.name]) == set(population.states)
        assert all(words.waits_for and words.woken_by for words in WORDS[population.name].values())


def test_parts_have_their_state_since_when_and_their_particulars():
    clock = Clock()
    recorder = Recorder(clock, num_envs=2, num_workers=1)
    clock.now = 130.0
    recorder.desktops.tracks[1].enter(DesktopState.WAIT_ADMISSION)
    recorder.workers.tracks[0].enter(WorkerState.LOADING)
    recorder.trainer.tracks[0].enter(TrainerState.WAIT_DATA)
    recorder.details["desktops"] = lambda index: f"slot {index} is full"
    recorder.tellers.append(lambda: Part(name="store", state="open", since=0.0, waits_for="a row", woken_by="a slot"))
    clock.now = 190.0
    found = {part.name: part for part in parts(recorder)}
    assert list(found) == ["slot 0", "slot 1", "worker 0", "trainer", "store"]
    assert (found["slot 1"].state, found["slot 1"].since) == ("wait_admission", 30.0)
    assert found["slot 1"].detail == "slot 1 is full"
    assert found["worker 0"].waits_for == "new weights to be loaded"
    assert found["trainer"].woken_by == "a group that becomes eligible"
    text = told(recorder)
    assert "slot 0" not in text, "what is off waits for nothing"
    assert "trainer: wait_data since 30.0 s, waits for a batch" in text


@pytest.mark.parametrize(("seconds", "text"), [(3.21, "3.2 s"), (600.0, "10.0 min"), (9000.0, "2.50 h")])
def test_times_are_told_in_the_unit_that_reads_best(seconds, text):
    assert hours(seconds) == text
