"""Trajectories come back as they were recorded, or are reported as torn."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dartsim.core.errors import TornRecord
from dartsim.core.types import Attempt, Drop, Ending, Observation, Reply, Task, Trajectory, TrajectoryState, Turn
from dartsim.store.blobs import BlobStore
from dartsim.store.load import load_trajectories
from dartsim.store.sql import SqlStore


@pytest.fixture
def blobs(tmp_path):
    return BlobStore(tmp_path / "screens")


def test_what_is_asked_for_comes_back(place, made):
    store = place.store()
    trajectories = [made.plain(0), made.plain(1, reward=0.5), made.plain(2), made.plain(3, reward=None)]
    for trajectory in trajectories:
        store.record(trajectory)
    store.drop([trajectories[0]], Drop.STALE)

    def ids(**wanted):
        return [trajectory.attempt.id for trajectory in load_trajectories(store.database, **wanted)]

    assert ids() == [0, 1, 2, 3]
    assert ids(states=[TrajectoryState.RECORDED]) == [1, 2, 3]
    assert ids(attempts=[3, 1, 77]) == [1, 3]


def test_a_torn_picture_is_reported(place, made, blobs):
    store = place.store(blobs=blobs)
    for number in range(2):
        store.record(made.ended(number))
    victim = sorted(blobs.folder.glob("??/*.png"))[0]
    victim.write_bytes(victim.read_bytes()[:-40])
    torn = []
    found = list(load_trajectories(store.database, blobs=blobs, on_torn=torn.append))
    assert len(found) == 1
    assert len(torn) == 1
    assert victim.name in torn[0].why
    with pytest.raises(TornRecord, match=rf"attempt {torn[0].attempt} cannot be read back: .*{victim.name}"):
        list(load_trajectories(store.database, blobs=blobs))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("turns = substr(turns, 1, length(turns) - 1)", "their checksum differs"),
        ("turns = 'text'", "its turns are not kept"),
        ("turns = x'00'", "their checksum differs"),
        ("turns = NULL", "its turns are not kept"),
        ("task = 'another'", "its task is not stored"),
    ],
)
def test_a_changed_row_is_reported(place, made, blobs, change, why):
    store = place.store(blobs=blobs)
    store.record(made.ended(0))
    store.database.execute(f"UPDATE trajectories SET {change}")
    torn = []
    assert list(load_trajectories(store.database, blobs=blobs, on_torn=torn.append)) == []
    assert [one.attempt for one in torn] == [0]
    assert why in torn[0].why


def test_tokens_that_are_no_tokens_are_refused(place, made):
    store = place.store()
    turn = Turn(Observation(None, ""), Reply("WAIT", 0, 0, 0, 1, 1, tokens=np.array([2**31])))
    with pytest.raises(ValueError, match="a token is a number below"):
        store.record(made.ended(0, turns=(turn,)))


NASTY = st.text(st.characters(), max_size=20) | st.sampled_from(["\x00", "\ud800", "\x1b!", "ж"])
FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(lambda values: np.array(values, np.float32))
REPLIES = st.builds(
    Reply,
    NASTY,
    *[st.integers(0, 2**31 - 1)] * 5,
    tokens=st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=4).map(lambda values: np.array(values, np.int64)),
    logprobs=st.none() | FLOATS,
    entropies=st.none() | FLOATS,
    cached_tokens=st.none(),  # a measurement, which is counted when it is made and not stored
)
PICTURES = st.none() | st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 255)).map(
    lambda shape: np.full((shape[0], shape[1], 3), shape[2], np.uint8)
)
TURNS = st.lists(st.builds(Turn, st.builds(Observation, PICTURES, NASTY, st.none() | NASTY), REPLIES), max_size=4)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=TURNS, instruction=NASTY, cause=st.none() | NASTY, reward=st.none() | st.floats(0, 1))
def test_any_trajectory_comes_back(made, tmp_path_factory, turns, instruction, cause, reward):
    store = SqlStore.open(tmp_path_factory.mktemp("run"))
    attempt = Attempt(7, Task("t", instruction, spec={"a": [1, {"b": None}]}), 3, 1, 2**62, 30, 2)
    trajectory = Trajectory(attempt, tuple(turns), Ending.DONE, reward, cause, 0.1, 1e9 + 1 / 3)
    store.record(trajectory)
    (found,) = load_trajectories(store.database, blobs=store.blobs)
    store.close()
    assert made.same(found, trajectory)
