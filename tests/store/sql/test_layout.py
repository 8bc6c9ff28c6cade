"""Layouts: a new database is made, an older one upgraded, a newer one refused; in both databases."""

import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, select, text

from dartsim.core.checks import check_store
from dartsim.core.types import Drop
from dartsim.store.errors import LayoutUnknown
from dartsim.store.sql import METADATA, SqlStore
from dartsim.store.sql.layout import KNOWN, layout_of, prepare, upgrade
from dartsim.store.sql.tables import LAYOUT, TRAJECTORIES, VERSIONS

# What the first version of dartsim made, in its own words.
FIRST = """
CREATE TABLE trajectories (
    attempt INTEGER NOT NULL, task VARCHAR NOT NULL, "group" INTEGER NOT NULL, ending VARCHAR NOT NULL, cause VARCHAR,
    reward FLOAT, num_turns INTEGER NOT NULL, oldest_version INTEGER NOT NULL, newest_version INTEGER NOT NULL,
    started FLOAT NOT NULL, finished FLOAT NOT NULL, state VARCHAR NOT NULL, reason VARCHAR, "update" INTEGER,
    PRIMARY KEY (attempt));
CREATE INDEX ix_trajectories_task ON trajectories (task);
CREATE TABLE updates (
    "update" INTEGER NOT NULL, version INTEGER NOT NULL, num_trajectories INTEGER NOT NULL, num_turns INTEGER NOT NULL,
    PRIMARY KEY ("update"));
INSERT INTO trajectories VALUES (0, 't', 0, 'done', NULL, 1.0, 4, 0, 0, 0.0, 9.0, 'trained', NULL, 1);
INSERT INTO trajectories VALUES (1, 't', 0, 'done', NULL, 0.0, 4, 0, 0, 0.0, 9.0, 'leased', NULL, 2);
INSERT INTO trajectories VALUES (2, 't', 0, 'broken', 'gone', NULL, 4, 0, 0, 0.0, 9.0, 'dropped', 'masked', NULL);
INSERT INTO updates VALUES (1, 1, 1, 4);
"""


def make_first(engine):
    with engine.begin() as connection:
        for statement in FIRST.split(";\n"):
            if statement.strip():
                connection.execute(text(statement))


def everything(engine):
    """All that a database holds: its tables with their columns and indexes, and their rows."""
    with engine.connect() as connection:
        found = inspect(connection)
        return {
            table: (
                [column["name"] for column in found.get_columns(table)],
                sorted(index["name"] for index in found.get_indexes(table)),
                sorted(map(str, connection.execute(text(f"select * from {table}")))),
            )
            for table in found.get_table_names()
        }


def differences(engine):
    """What alembic would change, apart from comments."""
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA)
    return [change for change in found if "modify_comment" not in str(change) and "alembic_version" not in str(change)]


def test_a_new_database_has_the_present_layout(place):
    engine = place.engine()
    prepare(engine)
    with engine.connect() as connection:
        assert layout_of(connection) == LAYOUT
    assert differences(engine) == []


def test_an_upgraded_database_is_as_a_new_one(place, postgres_or_file):
    engine = place.engine()
    make_first(engine)
    prepare(engine)
    fresh = postgres_or_file()
    prepare(fresh)
    upgraded, made_new = everything(engine), everything(fresh)
    assert {table: (columns, indexes) for table, (columns, indexes, _) in upgraded.items()} == {
        table: (columns, indexes) for table, (columns, indexes, _) in made_new.items()
    }
    assert differences(engine) == []


@pytest.fixture
def postgres_or_file(place, tmp_path):
    """Makes another empty database of the same kind."""
    opened = []

    def make():
        other = type(place)(place.url, tmp_path / "other", f"{place.schema}_other")
        other.folder.mkdir()
        opened.append(other)
        return other.engine()

    yield make
    for other in opened:
        other.dispose()


def test_an_older_database_is_upgraded_and_goes_on(place, made):
    make_first(place.engine())
    store = place.store()
    recovered = store.recover()
    assert (recovered.update, recovered.version, recovered.returned, recovered.next_attempt) == (1, 1, (1,), 3)
    with store.engine.connect() as connection:
        rows = connection.execute(select(TRAJECTORIES).order_by(TRAJECTORIES.c.attempt)).mappings().all()
        assert [(row["state"], row["cause"], row["kept_bytes"]) for row in rows] == [
            ("trained", None, None),
            ("recorded", None, None),
            ("dropped", "gone", None),
        ]
        assert connection.execute(select(VERSIONS)).all() == [(1, 1, 0)]
    store.record(made.plain(3))
    store.give_up([1], Drop.UNUSED)
    store.lease(made.batch([made.plain(3)], update=2))
    store.trained(made.batch([made.plain(3)], update=2), 2)


def test_the_layouts_that_migrations_make_are_those_that_are_known(place):
    engine = place.engine()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"))
        assert upgrade(connection, "base") == list(KNOWN)
    prepare(engine)
    store = SqlStore(engine)
    check_store(lambda: store)


def test_a_newer_database_is_refused_and_left_alone(place):
    prepare(place.engine())
    with place.engine().begin() as connection:
        connection.execute(text("update alembic_version set version_num = '77'"))
    before = everything(place.engine())
    with pytest.raises(LayoutUnknown, match="has layout 77, and this dartsim knows layouts up to 2: a newer dartsim"):
        place.store()
    assert everything(place.engine()) == before


def test_somebody_elses_database_is_refused(place):
    with place.engine().begin() as connection:
        connection.execute(text("create table customers (name varchar)"))
    with pytest.raises(LayoutUnknown, match="holds tables that are not dartsim's \\(customers\\)"):
        place.store()


def test_an_upgrade_that_fails_in_the_middle_changes_nothing(place, monkeypatch):
    from alembic.operations import Operations

    make_first(place.engine())
    before = everything(place.engine())
    create_table = Operations.create_table

    def failing(self, name, *columns, **more):
        if name == "documents":
            raise RuntimeError("the power went")
        return create_table(self, name, *columns, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Operations, "create_table", failing)
        with pytest.raises(RuntimeError, match="the power went"):
            place.store()
    assert everything(place.engine()) == before
    place.store()


def test_alembic_is_loaded_only_to_upgrade(tmp_path):
    program = (
        "import sys; from pathlib import Path; from dartsim.store.sql import SqlStore, open_sqlite\n"
        f"SqlStore(open_sqlite(Path({str(tmp_path)!r}) / 'run.db')).dispose()\n"
        "assert 'sqlalchemy' in sys.modules and 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
