"""Idle time: every second has one cause, and what works and what is idle add up to all there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.observe.idle import attribute
from dartsim.observe.recording import KEPT_FIELDS
from dartsim.observe.states import AT_WORK, CAUSES, DesktopState, EngineState, TrainerState
from dartsim.observe.window import Window, recorded_window

D, W, T = DesktopState, EngineState, TrainerState
END = 100.0


def window(desktops, engines, trainer) -> Window:
    """Return a window in which each part stays in each of its states for equally long."""

    def stays(parts):
        rows = [
            (member, state, place * END / len(states), (place + 1) * END / len(states))
            for member, states in enumerate(parts)
            for place, state in enumerate(states)
        ]
        return np.array(rows, list(KEPT_FIELDS))

    populations = {"desktops": desktops, "engines": engines, "trainer": [trainer]}
    sizes = {name: len(parts) for name, parts in populations.items()}
    return Window(0.0, END, sizes, {name: stays(parts) for name, parts in populations.items()})


def seconds(found, population):
    return found["populations"][population]["seconds"]


def some(states, most=6):
    return st.lists(st.sampled_from(list(states)), min_size=1, max_size=most)


@given(
    desktops=st.lists(some(D), min_size=1, max_size=5),
    engines=st.lists(some(W), min_size=1, max_size=3),
    trainer=some(T),
)
def test_every_second_is_work_or_has_one_known_cause(desktops, engines, trainer):
    found = attribute(window(desktops, engines, trainer))
    for name, size in (("desktops", len(desktops)), ("engines", len(engines)), ("trainer", 1)):
        population = found["populations"][name]
        assert set(population["seconds"]) <= {AT_WORK, *CAUSES}
        assert sum(population["seconds"].values()) == pytest.approx(size * END, abs=0.01)


@given(desktops=st.lists(some(D), min_size=1, max_size=4), engines=st.lists(some(W), min_size=1, max_size=3))
def test_states_that_name_their_cause_keep_their_seconds(desktops, engines):
    found = attribute(window(desktops, engines, [T.TRAINING]))

    def spent(parts, states):
        return sum(END / len(part) for part in parts for state in part if state in states)

    booting = seconds(found, "desktops").get("starting", 0.0)
    assert booting == pytest.approx(spent(desktops, (D.STARTING,)), abs=0.01)
    at_work = seconds(found, "engines").get(AT_WORK, 0.0)
    assert at_work == pytest.approx(spent(engines, (W.BUSY, W.DRAINING)), abs=0.01)


@pytest.mark.parametrize(
    ("desktops", "cause"),
    [
        ([D.ACTING, D.ACTING, D.STARTING], "acting"),
        ([D.STARTING, D.SETUP, D.SETUP], "setting up"),
        ([D.GENERATING, D.GENERATING, D.CLOSING], "closing"),
        ([D.GENERATING, D.GENERATING], "network"),
        ([D.OFF, D.OFF], "network"),
        ([D.WAIT_ADMISSION, D.WAIT_ADMISSION, D.ACTING], "training"),
        ([D.ACTING, D.STARTING], "starting"),  # a tie: the first state
    ],
)
def test_an_idle_engine_waits_for_what_most_desktops_do(desktops, cause):
    found = attribute(window([[state] for state in desktops], [[W.IDLE]], [T.TRAINING]))
    assert seconds(found, "engines") == {cause: END}


@pytest.mark.parametrize(
    ("desktops", "cause"),
    [
        ([D.GENERATING, D.GENERATING, D.ACTING], "generating"),
        ([D.WAIT_UNIT, D.WAIT_UNIT, D.ACTING], "acting"),  # those with an attempt count first
        ([D.WAIT_UNIT, D.WAIT_START, D.WAIT_UNIT], "unit unfinished"),
        ([D.WAIT_ADMISSION], "not admitted"),
        ([D.SYNC_WAIT, D.SYNC_WAIT], "weight sync"),
    ],
)
def test_a_trainer_without_data_waits_for_what_most_desktops_do(desktops, cause):
    found = attribute(window([[state] for state in desktops], [[W.BUSY]], [T.WAIT_DATA]))
    assert seconds(found, "trainer") == {cause: END}


def test_a_desktop_that_is_not_admitted_waits_for_what_the_trainer_does():
    trainer = [T.WAIT_DATA, T.TRAINING, T.WAIT_PUBLISH, T.WAIT_SYNC, T.LENT]
    found = attribute(window([[D.WAIT_ADMISSION]], [[W.BUSY]], trainer))
    causes = ("training", "waiting to publish", "weight sync")
    assert seconds(found, "desktops") == {"not admitted": 40.0, **dict.fromkeys(causes, 20.0)}


def test_causes_of_a_run_agree_with_its_states(make_recorder):
    recorder = make_recorder(seed=2, hours=3.0, coupled=True)
    found = attribute(recorded_window(recorder))
    last = recorder.snapshots[-1]
    spent = seconds(found, "desktops")
    assert spent["starting"] == pytest.approx(last.desktops[D.STARTING], abs=0.01)
    assert spent["generating"] == pytest.approx(last.desktops[D.GENERATING], abs=0.01)
    assert seconds(found, "trainer")[AT_WORK] == pytest.approx(last.trainer[T.TRAINING], abs=0.01)
    # An idle engine may wait for the sync too, while most desktops do.
    assert seconds(found, "engines")["weight sync"] >= last.engines[W.LOADING] - 0.01
