"""The SQL store: the life of a trajectory, when it is written, and what a restart finds; in both databases."""

import numpy as np
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from dartsim.core.checks import check_store
from dartsim.core.errors import InvariantViolated, StoreFault, StoreFull, TakenOver
from dartsim.core.types import Drop, Group, SuccessSource, TrajectoryState
from dartsim.curation.success_pool import SuccessPool
from dartsim.store.blobs import BlobStore
from dartsim.store.load import load_successes, load_trajectories
from dartsim.store.tables import BATCH_MEMBERS, BATCHES, TRAJECTORIES, VERSIONS


def states(store):
    columns = TRAJECTORIES.c
    with store.engine.connect() as connection:
        query = select(columns.attempt, columns.state, columns.reason, columns.update).order_by(columns.attempt)
        return [tuple(row) for row in connection.execute(query)]


def rows(store, table):
    with store.engine.connect() as connection:
        return [dict(row) for row in connection.execute(select(table)).mappings()]


@pytest.mark.parametrize("durability", ["each", "batched"])
@pytest.mark.parametrize("keep", ["all", "live", "none"])
def test_it_conforms(place, durability, keep):
    check_store(lambda: place.store(durability=durability, keep=keep))


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("max_pending", [1, 3, 2_000])
def test_it_conforms_whenever_it_writes(place, max_pending, settled):
    check_store(lambda: place.store(max_pending=max_pending, settled=settled))


@pytest.mark.parametrize("durability", ["each", "batched"])
def test_rows_have_the_last_states_of_trajectories(place, made, durability):
    store = place.store(durability=durability)
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


def test_what_each_told_is_there_when_the_call_returns(place, made):
    store, reader = place.store(durability="each"), place.engine()

    def seen():
        with reader.connect() as connection:
            return [
                tuple(row)
                for row in connection.execute(text("select attempt, state from trajectories order by attempt"))
            ]

    first, second = made.plain(0), made.plain(1)
    store.record(first)
    assert seen() == [(0, "recorded")]
    store.record(second)
    store.eligible(Group(0, made.TASK, (first,), 70.0))
    assert seen() == [(0, "eligible"), (1, "recorded")]
    store.drop([second], Drop.STALE)
    assert seen() == [(0, "eligible"), (1, "dropped")]


def test_what_is_batched_is_there_at_the_next_lease(place, made):
    store, reader = place.store(), place.engine()

    def seen():
        with reader.connect() as connection:
            return connection.scalar(text("select count(*) from trajectories"))

    for number in range(3):
        store.record(made.plain(number))
    assert seen() == 0
    store.lease(made.batch([made.plain(0)]))
    assert seen() == 3


def test_a_release_leads_back_to_where_a_trajectory_was(place, made):
    store = place.store()
    judged, unjudged = made.plain(0), made.plain(1)
    for trajectory in (judged, unjudged):
        store.record(trajectory)
    store.eligible(Group(0, made.TASK, (judged, unjudged), 70.0))  # the second one is not its own
    both = made.batch([judged, unjudged])
    store.lease(both)
    store.release(both)
    assert states(store) == [(0, "eligible", None, None), (1, "recorded", None, None)]
    store.lease(both)
    again = place.store()
    assert again.recover().returned == (0, 1)
    assert states(again) == [(0, "eligible", None, None), (1, "recorded", None, None)]
    again.lease(both)


def test_batches_and_versions_are_kept(place, made):
    store = place.store()
    first, second = made.plain(0), made.plain(1)
    for trajectory in (first, second):
        store.record(trajectory)
    store.lease(made.batch([first, second]))
    store.release(made.batch([first, second]))
    store.lease(made.batch([second]))
    store.trained(made.batch([second]), 1)
    assert [(row["batch"], row["update"], row["state"]) for row in rows(store, BATCHES)] == [
        (1, 1, "released"),
        (2, 1, "trained"),
    ]
    assert sorted(tuple(row.values()) for row in rows(store, BATCH_MEMBERS)) == [(1, 0), (1, 1), (2, 1)]
    assert rows(store, VERSIONS) == [{"version": 1, "update": 1, "parent": 0}]


def test_numbers_of_updates_only_rise(place, made):
    store = place.store()
    for number in range(2):
        store.record(made.plain(number))
    store.lease(made.batch([made.plain(0)]))
    store.trained(made.batch([made.plain(0)]), 1)
    with pytest.raises(InvariantViolated, match="update 1 cannot be done any more: update 1 is finished"):
        store.lease(made.batch([made.plain(1)]))
    again = place.store()
    with pytest.raises(InvariantViolated, match="update 1 cannot be done any more"):
        again.lease(made.batch([made.plain(1)]))


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


def test_a_process_that_was_taken_for_dead_writes_no_more(place, made):
    old = place.store(durability="each")
    old.record(made.plain(0))
    new = place.store(durability="each")
    with pytest.raises(TakenOver, match="another process writes to this run now"):
        old.record(made.plain(1))
    new.record(made.plain(2))
    assert [row[0] for row in states(new)] == [0, 2]


def test_a_transaction_whose_answer_was_lost_is_not_written_twice(place, made, monkeypatch):
    store = place.store(durability="each")
    store.record(made.plain(0))
    begin = type(store.engine).begin

    class Lost(Exception):
        pass

    def losing(engine):
        context = begin(engine)

        class Around:
            def __enter__(self):
                return context.__enter__()

            def __exit__(self, *error):
                context.__exit__(*error)
                raise OperationalError("commit", {}, Lost("the connection broke"))

        return Around()

    with monkeypatch.context() as patch:
        patch.setattr(type(store.engine), "begin", losing)
        with pytest.raises(StoreFault, match="the connection broke"):
            store.record(made.plain(1))
    store.record(made.plain(2))
    assert [row[0] for row in states(store)] == [0, 1, 2]


def test_a_transaction_that_failed_stays_first_in_line(place, made, monkeypatch):
    store = place.store(durability="each")
    with monkeypatch.context() as patch:

        def full(engine):
            raise OperationalError("insert", {}, Exception("database or disk is full"))

        patch.setattr(type(store.engine), "begin", full)
        with pytest.raises(StoreFull, match="make room, then resume the run"):
            store.record(made.plain(0))
    store.close()
    assert [row[0] for row in states(store)] == [0]


def test_the_success_pool_comes_back(place, made, tmp_path):
    blobs = BlobStore(tmp_path / "screens")
    store = place.store(blobs=blobs, keep="live")
    pool = SuccessPool(max_per_task=2)
    collected, online, failed = made.ended(50), made.ended(1), made.ended(2, reward=0.0, group=2)
    other = made.ended(3, reward=0.0, group=2)
    pool.add(collected, now=0.0)
    for trajectory in (online, failed, other):
        store.record(trajectory)
    store.drop([online], Drop.ALL_SOLVED)
    pool.learn([online], now=61.0)
    store.keep_successes(pool.stored("check"))
    rescue = pool.rescue([failed, other])
    store.keep_successes(pool.stored("check"))

    found = load_successes(place.engine(), blobs=blobs)
    assert [(entry.trajectory.attempt.id, entry.origin, entry.uses, entry.stored) for entry in found] == [
        (-1, SuccessSource.COLLECTED, 0, 0.0),
        (1, SuccessSource.ONLINE, 1, 61.0),
    ]
    assert made.same(found[1].trajectory, online)
    assert made.same(found[1].trajectory, rescue.trajectories[-1])
    assert found[0].trajectory.attempt.group == -1

    pool.learn([made.ended(4)], now=80.0)
    store.record(made.ended(4))
    store.keep_successes(pool.stored("check"))
    assert [entry.trajectory.attempt.id for entry in load_successes(place.engine(), blobs=blobs)] == [1, 4]
    again = place.store(blobs=blobs, keep="live")
    again.keep_successes(pool.stored("check"))
    assert again.recover().update == 0
    assert [entry.trajectory.attempt.id for entry in load_successes(place.engine(), blobs=blobs)] == [1, 4]


def test_successes_of_one_instant_come_back_in_the_order_in_which_they_were_stored(place, made):
    pool, again, store = SuccessPool(), SuccessPool(), place.store()
    ended = [made.ended(number) for number in (5, 2, 3)]
    for trajectory in ended:
        store.record(trajectory)
        pool.learn([trajectory], now=80.0)
    store.keep_successes(pool.entries())
    again.restore(load_successes(place.engine()), {})
    assert [entry.trajectory.attempt.id for entry in again.entries()] == [3, 2, 5]
    assert [entry.stored for entry in again.entries()] == [entry.stored for entry in pool.entries()]


def test_only_live_trajectories_keep_their_turns_if_so_asked(place, made, tmp_path):
    blobs = BlobStore(tmp_path / "screens")
    store = place.store(keep="live", blobs=blobs)
    trajectories = [made.ended(number) for number in range(4)] + [made.plain(4), made.plain(5)]
    for trajectory in trajectories:
        store.record(trajectory)
    store.drop([trajectories[0], trajectories[4]], Drop.STALE)
    store.lease(made.batch(trajectories[1:3]))
    kept = {t.attempt.id for t in load_trajectories(store.engine, blobs=blobs, on_torn=lambda _: None)}
    assert kept == {1, 2, 3, 5}
    store.trained(made.batch(trajectories[1:3]), 1)
    left = list(load_trajectories(store.engine, blobs=blobs, states=[TrajectoryState.RECORDED]))
    assert [made.same(*pair) for pair in zip(left, (trajectories[3], trajectories[5]), strict=True)] == [True, True]
    assert len(list(blobs.names())) == 6
