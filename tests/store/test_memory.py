"""What became of every trajectory: the same transitions in memory and in SQL, and rows that tell them."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, select, text

from dartsim.core.checks import check_store, sample_batch, sample_trajectory
from dartsim.core.errors import InvariantViolated
from dartsim.core.types import Drop, MetricRecord, Score, ScoreRecord, TrajectoryState
from dartsim.store.database import open_sqlite
from dartsim.store.memory import MemoryStore
from dartsim.store.rows import ROW_BYTES, trajectory_of, trajectory_row
from dartsim.store.sql import SqlStore
from dartsim.store.tables import TRAJECTORIES, UPDATES


@contextmanager
def sql_store(url="sqlite://", **options):
    store = SqlStore(create_engine(url), **options)
    yield store
    store.close()


def rows(store):
    store.flush()
    with store.engine.connect() as connection:
        found = connection.execute(select(TRAJECTORIES).order_by(TRAJECTORIES.c.attempt)).mappings()
        return [dict(row) for row in found]


def states(store):
    return [(row["attempt"], row["state"], row["reason"], row["update"]) for row in rows(store)]


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


def test_a_trajectory_is_in_a_batch_once():
    store = MemoryStore()
    twice = sample_trajectory(0)
    store.record(twice)
    with pytest.raises(InvariantViolated, match="named twice"):
        store.lease(sample_batch([twice, twice]))


def test_the_memory_store_counts_states_and_reasons():
    store = MemoryStore()
    trajectories = [sample_trajectory(number) for number in range(6)]
    for trajectory in trajectories:
        store.record(trajectory)
    store.drop(trajectories[:2], Drop.MASKED)
    store.drop(trajectories[2:3], Drop.STALE)
    batch = sample_batch(trajectories[3:5])
    store.lease(batch)
    store.trained(batch, 1)
    assert {state.value: count for state, count in store.counts.items() if count} == {
        "recorded": 1,
        "trained": 2,
        "dropped": 3,
    }
    assert store.reasons == {Drop.MASKED: 2, Drop.STALE: 1}
    assert set(store.live) == {5}


def test_a_row_tells_what_an_attempt_was():
    with sql_store() as store:
        store.record(sample_trajectory(7, reward=0.5, num_turns=3))
        store.record(sample_trajectory(8, reward=None))
        first, second = rows(store)
    assert first == {
        "attempt": 7,
        "task": "check",
        "group": 7,
        "ending": "done",
        "cause": None,
        "reward": 0.5,
        "score": None,
        "num_turns": 3,
        "oldest_version": 0,
        "newest_version": 0,
        "started": 0.0,
        "finished": 60.0,
        "state": "recorded",
        "reason": None,
        "update": None,
        "index": 0,
        "seed": 7,
        "turn_limit": 30,
        "version": 0,
        "ready": None,
        "kept_bytes": 3 * (ROW_BYTES + len("WAIT")),
    }
    assert (second["ending"], second["cause"], second["reward"]) == ("broken", "EnvBroken", None)


def test_updates_are_rows_too():
    with sql_store() as store:
        batch = sample_batch([sample_trajectory(0), sample_trajectory(1, num_turns=5)])
        for trajectory in batch.trajectories:
            store.record(trajectory)
        store.lease(batch)
        store.trained(batch, 1)
        with store.engine.connect() as connection:
            found = [tuple(row) for row in connection.execute(select(UPDATES))]
    assert found == [(1, 1, 2, 7)]


def test_what_is_leased_released_or_trained_is_in_the_file_at_once(tmp_path):
    """Whatever happens to the process afterwards: another connection sees it."""
    path = tmp_path / "run.db"
    store = SqlStore(open_sqlite(path))
    reader = create_engine(f"sqlite:///{path}")

    def seen():
        with reader.connect() as connection:
            query = text("select attempt, state from trajectories order by attempt")
            return [tuple(row) for row in connection.execute(query)]

    trajectories = [sample_trajectory(0), sample_trajectory(1)]
    for trajectory in trajectories:
        store.record(trajectory)
    assert seen() == []
    batch = sample_batch(trajectories[:1])
    store.lease(batch)
    assert seen() == [(0, "leased"), (1, "recorded")]
    store.release(batch)
    assert seen() == [(0, "recorded"), (1, "recorded")]
    store.lease(batch)
    store.trained(batch, 1)
    assert seen() == [(0, "trained"), (1, "recorded")]
    store.drop(trajectories[1:], Drop.UNUSED)
    store.close()
    assert seen() == [(0, "trained"), (1, "dropped")]
    reader.dispose()
    store.close()


def test_a_store_that_is_opened_again_knows_what_may_still_change(tmp_path):
    path = tmp_path / "run.db"
    batch, dropped, left = sample_batch([sample_trajectory(0)]), sample_trajectory(1), sample_trajectory(2)
    store = SqlStore(open_sqlite(path))
    for trajectory in (*batch.trajectories, dropped, left):
        store.record(trajectory)
    store.drop([dropped], Drop.STALE)
    store.lease(batch)
    store.close()

    again = SqlStore(open_sqlite(path))
    with pytest.raises(InvariantViolated, match="attempt 1 is not live"):
        again.drop([dropped], Drop.UNUSED)
    with pytest.raises(InvariantViolated, match="attempt 2 was recorded twice"):
        again.record(left)
    again.release(batch)
    again.drop([left], Drop.UNUSED)
    assert states(again) == [
        (0, "recorded", None, None),
        (1, "dropped", "stale", None),
        (2, "dropped", "unused", None),
    ]
    again.close()


def test_pending_rows_are_written_when_there_are_many():
    with sql_store(max_pending=3) as store:
        for number in range(3):
            store.record(sample_trajectory(number))
        assert [row["state"] for row in rows(store)] == ["recorded"] * 3
        for number in range(3):
            store.drop([sample_trajectory(number)], Drop.MASKED)
        assert {row["state"] for row in rows(store)} == {"dropped"}


def test_a_row_keeps_how_a_reward_was_computed():
    record = ScoreRecord("desktop-env 1", 2.0, (MetricRecord("exact_match", 0.5, 1.0, ("ab",), "cd"),))
    trajectory = replace(sample_trajectory(0), reward=Score(0.5, record))
    row = trajectory_row(trajectory, "recorded")
    assert (row["reward"], type(row["reward"])) == (0.5, float)
    assert trajectory_of(row, trajectory.attempt.task, trajectory.turns).reward.record == record
