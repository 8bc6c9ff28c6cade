"""The SQL store: the life of a trajectory, when it is written, and what a restart finds."""

import sqlite3

import numpy as np
import pytest

from dartsim.core.errors import StoreFault, StoreFull
from dartsim.core.types import Drop, SuccessSource
from dartsim.curation.success_pool import SuccessPool
from dartsim.store.blobs import BlobStore
from dartsim.store.database import DATABASE_FILE, reading
from dartsim.store.load import load_successes, load_trajectories
from dartsim.store.sql import SqlStore
from dartsim.testing.ports import check_store


def states(store):
    columns = 'attempt, state, reason, "update"'
    return list(store.database.execute(f"SELECT {columns} FROM trajectories ORDER BY attempt"))


def written(place):
    """What another process sees."""
    with reading(place.folder / DATABASE_FILE) as database:
        return list(database.execute("SELECT attempt, state FROM trajectories ORDER BY attempt"))


@pytest.mark.parametrize("max_changes", [1, 3, 2_000])
def test_it_conforms_whenever_it_writes(place, max_changes):
    check_store(lambda: place.store(max_changes=max_changes))


def test_rows_have_the_last_states_of_trajectories(place, made):
    store = place.store()
    first, second, third, masked = (made.plain(number, reward=None if number == 3 else 1.0) for number in range(4))
    for trajectory in (first, second, third, masked):
        store.record(trajectory)
    store.drop((masked,), Drop.MASKED)
    store.lease(made.batch((first, second)))
    store.release(made.batch((first, second)))
    store.drop((second,), Drop.STALE)
    store.lease(made.batch((first, third)))
    store.trained(made.batch((first, third)), 1)
    assert states(store) == [
        (0, "trained", None, 1),
        (1, "dropped", "stale", None),
        (2, "trained", None, 1),
        (3, "dropped", "masked", None),
    ]
    assert list(store.database.execute("SELECT * FROM updates")) == [(1, 1, 2, 4)]


def test_a_transaction_has_whole_steps_and_ends_after_enough_of_them(place, made):
    store = place.store(max_changes=4)  # the first step has a task, too
    for number in range(2):
        store.record(made.plain(number))
        store.settle(made.State())
        assert written(place) == []
    store.record(made.plain(2))
    assert written(place) == []
    store.settle(made.State())
    assert len(written(place)) == 3


def test_a_transaction_ends_with_a_lease_a_release_and_a_trained_mark(place, made):
    store = place.store()
    store.record(made.plain(0))
    both = made.batch([made.plain(0)])
    for call, state in ((store.lease, "leased"), (store.release, "recorded"), (store.lease, "leased")):
        call(both)
        store.settle(made.State())
        assert written(place) == [(0, state)]
    store.trained(both, 1)
    store.settle(made.State())
    assert written(place) == [(0, "trained")]


def test_what_follows_a_suspension_is_not_written(place, made):
    store = place.store()
    store.record(made.plain(0))
    made.settle(store)
    store.record(made.plain(1))
    store.suspend()
    store.drop([made.plain(0)], Drop.UNUSED)
    made.settle(store)
    store.close()
    assert written(place) == [(0, "recorded")]


@pytest.mark.parametrize(("text", "error"), [("database or disk is full", StoreFull), ("disk I/O error", StoreFault)])
def test_a_failed_transaction_leaves_the_last_one_and_nothing_follows(tmp_path, made, text, error):
    class Failing(sqlite3.Connection):
        fails = False

        def commit(self):
            if self.fails:
                raise sqlite3.OperationalError(text)
            super().commit()

    database = sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None, factory=Failing)
    store = SqlStore(database)
    store.record(made.plain(0))
    made.settle(store)
    store.record(made.plain(1))
    database.fails = True
    with pytest.raises(error):
        made.settle(store)
    database.fails = False
    store.record(made.plain(2))
    made.settle(store)
    assert states(store) == [(0, "recorded", None, None)]
    store.close()


def test_documents_come_back(place):
    store = place.store()
    rng = np.random.default_rng(7)
    rng.random(3)
    store.save({"tasks": {"next": [3, 1, 2]}, "rng": rng.bit_generator.state})
    store.save({"tasks": {"next": []}})
    found = place.store().documents()
    assert found["tasks"] == {"next": []}
    again = np.random.default_rng(0)
    again.bit_generator.state = found["rng"]
    assert again.random() == rng.random()


def test_the_success_pool_comes_back(place, made):
    blobs = BlobStore(place.folder / "screens")
    store = place.store(blobs=blobs)
    pool = SuccessPool(max_per_task=2)
    collected, online, failed = made.ended(50), made.ended(1), made.ended(2, reward=0.0, group=2)
    other = made.ended(3, reward=0.0, group=2)
    pool.add(collected, now=0.0)
    for trajectory in (online, failed, other):
        store.record(trajectory)
    store.drop([online], Drop.ALL_SOLVED)
    pool.learn([online], now=61.0)
    made.settle(store, pool.stored("check"))
    rescue = pool.rescue([failed, other])
    made.settle(store, pool.stored("check"))

    found = load_successes(store.database, blobs=blobs)
    assert [(entry.trajectory.attempt.id, entry.origin, entry.uses, entry.stored) for entry in found] == [
        (-1, SuccessSource.COLLECTED, 0, 0.0),
        (1, SuccessSource.ONLINE, 1, 61.0),
    ]
    assert made.same(found[1].trajectory, online)
    assert made.same(found[1].trajectory, rescue.trajectories[-1])
    assert found[0].trajectory.attempt.group == -1

    pool.learn([made.ended(4)], now=80.0)
    store.record(made.ended(4))
    made.settle(store, pool.stored("check"))
    again = place.store(blobs=blobs)
    assert again.recover().update == 0
    made.settle(again, pool.stored("check"))
    assert [entry.trajectory.attempt.id for entry in load_successes(again.database, blobs=blobs)] == [1, 4]


def test_successes_of_one_instant_come_back_in_the_order_in_which_they_were_stored(place, made):
    pool, again, store = SuccessPool(), SuccessPool(), place.store()
    ended = [made.ended(number) for number in (5, 2, 3)]
    for trajectory in ended:
        store.record(trajectory)
        pool.learn([trajectory], now=80.0)
    made.settle(store, pool.entries())
    again.restore(load_successes(store.database), {})
    assert [entry.trajectory.attempt.id for entry in again.entries()] == [3, 2, 5]
    assert [entry.stored for entry in again.entries()] == [entry.stored for entry in pool.entries()]


def test_turns_and_files_go_once_nothing_needs_them(place, made):
    blobs = BlobStore(place.folder / "screens")
    store = place.store(blobs=blobs)
    shared = made.full_turn(7)
    trajectories = [made.ended(number, turns=(made.full_turn(number), shared)) for number in range(4)]
    for trajectory in trajectories:
        store.record(trajectory)
    made.settle(store)
    assert len(list(blobs.names())) == 5
    store.drop([trajectories[0]], Drop.STALE)
    store.lease(made.batch(trajectories[1:3]))
    assert len(list(blobs.names())) == 5, "a crash may take the drop back"
    made.settle(store)
    assert len(list(blobs.names())) == 4
    store.trained(made.batch(trajectories[1:3]), 1)
    made.settle(store)
    (left,) = load_trajectories(store.database, blobs=blobs, on_torn=lambda torn: None)
    assert made.same(left, trajectories[3])
    assert len(list(blobs.names())) == 2
    again = place.store(blobs=blobs)
    again.drop([trajectories[3]], Drop.UNUSED)
    again.record(made.ended(5, turns=(shared,)))
    made.settle(again)
    assert len(list(blobs.names())) == 1
