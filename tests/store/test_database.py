"""Opening a run's database: made, read without a trace, refused if it is another's, and its faults."""

import sqlite3

import pytest

from dartsim.core.errors import LayoutUnknown, StoreFault, StoreFull
from dartsim.core.types import MetricRecord, Score, ScoreRecord
from dartsim.store.database import DATABASE_FILE, database_errors, make_tables, open_database, reading, stored_documents
from dartsim.store.load import load_scores, load_trajectories
from dartsim.store.sql import SqlStore


def dump(path):
    with reading(path) as database:
        return [*database.iterdump(), database.execute("PRAGMA user_version").fetchone()]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_any_folder_has_a_database(tmp_path, made):
    for name in ("x?y", "p%41q", "a#b", "ж z"):
        folder = tmp_path / name
        folder.mkdir()
        store = SqlStore.open(folder)
        store.record(made.ended(0))
        made.settle(store)
        with reading(folder / DATABASE_FILE) as database:
            (found,) = load_trajectories(database, blobs=store.blobs)
        assert made.same(found, made.ended(0))
        store.close()
        assert sorted(path.name for path in folder.iterdir()) == ["run.db", "screens"]


def test_a_durable_store_writes_each_step_through_to_the_disk(tmp_path, made):
    store = SqlStore.open(tmp_path, durable=True)
    assert store.database.execute("PRAGMA synchronous").fetchone() == (2,)
    store.record(made.plain(0))
    store.settle(made.State())
    with reading(tmp_path / DATABASE_FILE) as database:
        assert database.execute("SELECT attempt FROM trajectories").fetchall() == [(0,)]
    store.close()


def test_reading_changes_nothing_whether_a_writer_was_killed_or_not(tmp_path, made):
    store = SqlStore.open(tmp_path)
    store.save({"a": 1})
    for log in (True, False):
        before = contents(tmp_path)
        assert (tmp_path / f"{DATABASE_FILE}-wal").is_file() is log
        assert stored_documents(tmp_path / DATABASE_FILE) == {"a": 1}
        assert contents(tmp_path) == before
        store.close()


def test_a_database_whose_process_was_killed_as_it_was_made_is_read(tmp_path):
    path = tmp_path / DATABASE_FILE
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA cache_size = 1")
    database.execute("BEGIN")
    for number in range(50):
        database.execute(f"CREATE TABLE t{number} (a)")
    assert (tmp_path / f"{DATABASE_FILE}-journal").is_file()
    before = contents(tmp_path)
    assert stored_documents(path) == {}
    assert contents(tmp_path) == before
    database.close()


def test_how_rewards_were_computed_is_read_while_the_run_goes_on(tmp_path, made):
    record = ScoreRecord("scorer 1", 1.5, (MetricRecord("exact_match", 0.5, 1.0, ("ab",), "cd"),))
    store = SqlStore.open(tmp_path)
    store.record(made.plain(0))
    store.record(made.plain(1, reward=Score(0.5, record)))
    made.settle(store)
    assert load_scores(tmp_path / DATABASE_FILE) == [(1, made.TASK.id, record)]
    store.record(made.plain(2))
    made.settle(store)
    store.close()


@pytest.mark.parametrize("ours", [True, False])
def test_another_layout_is_refused_and_left_alone(place, ours):
    if ours:
        make_tables(place.database())
        place.database().execute("PRAGMA user_version = 77")
    else:
        place.database().execute("CREATE TABLE customers (name)")
    before = dump(place.folder / DATABASE_FILE)
    with pytest.raises(LayoutUnknown, match="reads layout 4 only"):
        place.store()
    with pytest.raises(LayoutUnknown):
        stored_documents(place.folder / DATABASE_FILE)
    assert dump(place.folder / DATABASE_FILE) == before


def test_a_file_that_is_no_database_is_a_fault(tmp_path):
    path = tmp_path / DATABASE_FILE
    assert stored_documents(path) == {}
    path.touch()
    assert stored_documents(path) == {}
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreFault):
        stored_documents(path)
    with pytest.raises(StoreFault):
        SqlStore(open_database(path))


def test_a_full_disk_is_a_fault_of_its_own():
    with pytest.raises(StoreFull, match="make room, then resume the run"), database_errors():
        raise sqlite3.OperationalError("database or disk is full")
    with pytest.raises(StoreFault) as caught, database_errors():
        raise sqlite3.OperationalError("disk I/O error")
    assert type(caught.value) is StoreFault
