"""Which database a configuration names."""

import sys

import pytest
from sqlalchemy import event

from dartsim.core.errors import ConfigError, StoreFault
from dartsim.core.types import MetricRecord, Score, ScoreRecord
from dartsim.store.backends import open_store, store_backend
from dartsim.store.database import open_sqlite, open_url, schema_name
from dartsim.store.load import load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore


def pragma(engine, name):
    with engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_a_sqlite_file_can_be_read_while_it_is_written(tmp_path, durable, synchronous):
    engine = open_sqlite(tmp_path / "run.db", durable=durable)
    assert pragma(engine, "journal_mode") == "wal"
    assert pragma(engine, "synchronous") == synchronous
    engine.dispose()


def test_a_url_may_name_sqlite_too(tmp_path):
    engine = open_url(f"sqlite:///{tmp_path}/run.db")
    assert pragma(engine, "synchronous") == 2
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlit", r'"sqlit" is neither "memory" nor "sqlite" nor a URL'),
        ("mysql+pymysql://root@127.0.0.1/runs", "is no database that is tested"),
    ],
)
def test_another_database_is_refused(url, message):
    with pytest.raises(ConfigError, match=message):
        open_url(url)


def test_a_password_is_not_shown():
    with pytest.raises(ConfigError) as refused:
        open_url("oracle://me:secret@127.0.0.1/runs")
    assert "secret" not in str(refused.value)


def test_a_missing_driver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"psycopg, which is not installed: pip install .*\[postgres\]"):
        open_url("postgresql://me@127.0.0.1/runs")


def test_a_server_that_does_not_answer_is_a_fault_of_the_store():
    pytest.importorskip("psycopg")
    with pytest.raises(StoreFault, match="did not take a transaction"):
        SqlStore(open_url("postgresql://me@127.0.0.1:1/runs"))


@pytest.mark.parametrize(("url", "seconds"), [("", 10), ("?connect_timeout=3", "3")])
def test_a_server_that_cannot_be_reached_is_not_waited_for_for_hours(url, seconds):
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    engine, told = open_url(f"postgresql://me@127.0.0.1:1/runs{url}"), {}

    @event.listens_for(engine, "do_connect")
    def _connect(dialect, record, arguments, options):
        told.update(options)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        engine.connect()
    assert told["connect_timeout"] == seconds
    assert told["keepalives_idle"] + told["keepalives_interval"] * told["keepalives_count"] <= 30
    assert told["tcp_user_timeout"] == 30_000


def test_names_of_schemas():
    assert schema_name("2026-11-21 My Run!") == "2026_11_21_my_run"
    assert schema_name("ж") == "run"
    assert len(schema_name("x" * 99)) == 63
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    with pytest.raises(ConfigError, match="a schema is named by letters, digits and _"):
        open_url("postgresql://me@127.0.0.1/runs", schema='a"; drop schema b')


def test_a_store_is_opened_by_its_setting(tmp_path, made):
    assert isinstance(open_store("memory", tmp_path), MemoryStore)
    store = open_store("sqlite", tmp_path, durability="each", keep="all", checkpoints=True, max_disk_gib=1.0)
    assert pragma(store.engine, "synchronous") == 2
    store.record(made.ended(0))
    store.close()
    again = open_store("sqlite", tmp_path, keep="all")
    (found,) = load_trajectories(again.engine, blobs=again.disk_usage.blobs)
    assert made.same(found, made.ended(0))
    again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.db", "screens"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_how_rewards_were_computed_is_read_while_the_run_goes_on(kind, request, tmp_path, made):
    where = request.getfixturevalue("postgres").url if kind == "postgres" else kind
    record = ScoreRecord("scorer 1", 1.5, (MetricRecord("exact_match", 0.5, 1.0, ("ab",), "cd"),))
    store = open_store(where, tmp_path, durability="each", screenshots=False)
    store.record(made.plain(0))
    store.record(made.plain(1, reward=Score(0.5, record)))
    assert store_backend(where).scores(where, tmp_path) == [(1, made.TASK.id, record)]
    store.record(made.plain(2))  # it is still the writer
    store.close()


def test_a_store_in_memory_leaves_no_scores(tmp_path):
    with pytest.raises(ConfigError, match="nothing is left"):
        store_backend("memory").scores("memory", tmp_path)


def test_runs_share_a_server_under_their_own_names(postgres, tmp_path, made):
    stores = []
    for name in ("first-run", "second-run"):
        (tmp_path / name).mkdir()
        stores.append(open_store(postgres.url, tmp_path / name, durability="each", screenshots=False))
    stores[0].record(made.plain(0))
    assert [len(list(load_trajectories(store.engine))) for store in stores] == [1, 0]
    for store in stores:
        store.close()
