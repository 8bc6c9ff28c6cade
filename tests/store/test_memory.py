"""What became of every trajectory: the same transitions in memory and in SQL, and rows that tell them."""

import sqlite3
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dartsim.core.errors import InvariantViolated
from dartsim.core.types import MetricRecord, Score, ScoreRecord
from dartsim.store.load import load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore
from dartsim.testing.ports import check_store, sample_trajectory


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


def test_a_row_keeps_how_a_reward_was_computed():
    record = ScoreRecord("desktop-env 1", 2.0, (MetricRecord("exact_match", 0.5, 1.0, ("ab",), "cd"),))
    trajectory = replace(sample_trajectory(0), reward=Score(0.5, record))
    with sql_store() as store:
        store.record(trajectory)
        (found,) = load_trajectories(store.database)
    assert (found.reward, found.reward.record) == (0.5, record)
