"""What became of every trajectory: the same transitions in memory and in SQL, and rows that tell them."""

import sqlite3
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dartsim.core.errors import InvariantViolated
from dartsim.core.types import Drop, MetricRecord, Score, ScoreRecord, TrajectoryState
from dartsim.store.load import load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore
from dartsim.testing.ports import check_store, sample_batch, sample_trajectory


@contextmanager
def sql_store():
    store = SqlStore(sqlite3.connect(":memory:", isolation_level=None))
    yield store
    store.close()


def states(store):
    return list(store.database.execute('SELECT attempt, state, reason, "update" FROM trajectories ORDER BY attempt'))


def test_the_memory_store_conforms():
    check_store(MemoryStore)


def test_a_store_that_forgets_its_rules_does_not_conform():
    class Careless(MemoryStore):
        def drop(self, trajectories, reason):
            pass

    with pytest.raises(InvariantViolated, match="the store let the caller drop a trajectory twice"):
        check_store(Careless)


MOVES = {
    "lease": lambda store, batch: store.lease(batch),
    "release": lambda store, batch: store.release(batch),
    "train": lambda store, batch: store.trained(batch, batch.update),
    "drop": lambda store, batch: store.drop(batch.trajectories, Drop.STALE),
}
LEGAL = {
    TrajectoryState.RECORDED: {"lease", "drop"},
    TrajectoryState.LEASED: {"release", "train"},
    TrajectoryState.TRAINED: set(),
    TrajectoryState.DROPPED: set(),
    None: set(),
}
WAYS = {
    None: [],
    TrajectoryState.RECORDED: [],
    TrajectoryState.LEASED: ["lease"],
    TrajectoryState.TRAINED: ["lease", "train"],
    TrajectoryState.DROPPED: ["drop"],
}


@pytest.mark.parametrize("kind", ["memory", "sql"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("state", WAYS)
def test_every_transition_that_the_diagram_lacks_is_refused_and_changes_nothing(kind, move, state):
    with sql_store() as sql:
        store = MemoryStore() if kind == "memory" else sql
        batch = sample_batch([sample_trajectory(0)])
        if state is not None:
            store.record(batch.trajectories[0])
        for way in WAYS[state]:
            MOVES[way](store, batch)
        before = states(sql)
        if move in LEGAL[state]:
            MOVES[move](store, batch)
            return
        with pytest.raises(InvariantViolated, match=r"attempt 0 is .* can become"):
            MOVES[move](store, batch)
        assert states(sql) == before


def test_a_refused_batch_leaves_even_its_legal_members_alone():
    store = MemoryStore()
    good, unknown = sample_trajectory(0), sample_trajectory(1)
    store.record(good)
    with pytest.raises(InvariantViolated, match="attempt 1 is not live"):
        store.lease(sample_batch([good, unknown]))
    store.lease(sample_batch([good]))


def test_a_row_keeps_how_a_reward_was_computed():
    record = ScoreRecord("desktop-env 1", 2.0, (MetricRecord("exact_match", 0.5, 1.0, ("ab",), "cd"),))
    trajectory = replace(sample_trajectory(0), reward=Score(0.5, record))
    with sql_store() as store:
        store.record(trajectory)
        (found,) = load_trajectories(store.database)
    assert (found.reward, found.reward.record) == (0.5, record)
