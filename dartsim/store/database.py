"""Opens a run's database, a SQLite file or PostgreSQL by URL, and makes or checks its tables."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import create_engine, event, inspect, select
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, StaticPool

from dartsim.core.errors import ConfigError, LayoutUnknown, StoreFault
from dartsim.core.install import install_command
from dartsim.store.tables import DOCUMENTS, LAYOUT, LAYOUT_KEY, META, METADATA
from dartsim.store.transactions import fault_of

LOCK_SECONDS = 30
"""How long SQLite waits for another process that writes."""
SERVER = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How long to wait for a PostgreSQL server that cannot be reached: half a minute, instead of the two hours of most
systems. In seconds, the last one in milliseconds; a URL may override them."""


def open_sqlite(path: Path, *, durable: bool = False) -> Engine:
    """Return an engine on a SQLite file, in WAL mode so that readers can look while a run writes.

    Args:
        path: The file; made if it is missing.
        durable: Whether a transaction that returned survives a loss of power, which costs a write-through a
            transaction. It survives the end of the process, however that comes, in any case.
    """
    return _with_transactions(
        # Not as text: a path may have ? or % in it.
        create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": LOCK_SECONDS}),
        journal="WAL",
        synchronous="FULL" if durable else "NORMAL",
    )


@contextmanager
def reading_sqlite(path: Path) -> Iterator[Engine]:
    """Open a SQLite file for reading; neither it nor what is beside it changes."""
    log = path.with_name(f"{path.name}-wal")
    with TemporaryDirectory(prefix="dartsim-") as folder:
        options = "immutable=1"
        if log.is_file() and log.stat().st_size:
            # SQLite would write an index beside its log, and removes the log of an empty file.
            path, options = Path(shutil.copy(path, folder)), "mode=ro"
            shutil.copy(log, folder)
        address = f"{path.absolute().as_uri()}?{options}"
        engine = create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS), poolclass=NullPool
        )
        try:
            yield engine
        finally:
            engine.dispose()


def stored_documents(engine: Engine, schema: str | None = None) -> dict[str, Any] | None:
    """Return the documents of a run; None if the database, or its schema, has no tables of a run.

    Raises:
        LayoutUnknown: If the tables are another version's.
        StoreFault: If it does not answer, or is damaged.
    """
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table(META.name, schema=schema):
                return None
            connection = connection.execution_options(schema_translate_map={None: schema})
            layout = connection.scalar(select(META.c.value).where(META.c.key == LAYOUT_KEY))
            if layout != LAYOUT:
                raise _unknown_layout(f"layout {layout}")
            return {
                name: json.loads(text) for name, text in connection.execute(select(DOCUMENTS.c.name, DOCUMENTS.c.text))
            }
    except DBAPIError as error:
        raise StoreFault(f"the database cannot be read ({error.orig}); nothing was changed") from error


def open_in_memory() -> Engine:
    """Return an engine on a SQLite database in memory, shared by several lives of a simulated process."""
    return _with_transactions(
        create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}),
        journal="MEMORY",
        synchronous="OFF",
    )


def _with_transactions(engine: Engine, *, journal: str, synchronous: str) -> Engine:
    """Let SQLAlchemy begin transactions, in place of the driver, and set up each connection."""

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver's own transactions leave changes of tables out
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute(f"PRAGMA synchronous={synchronous}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def open_url(url: str, *, schema: str | None = None) -> Engine:
    """Return an engine on a database by URL, such as ``postgresql://user@host/name``.

    A password is better left to the driver (``PGPASSWORD``, ``~/.pgpass``) than written into the URL.

    Raises:
        ConfigError: If there is no such kind of database, or its driver is missing.
    """
    address = _parsed(url)
    if address.get_backend_name() == "sqlite":
        return open_sqlite(Path(address.database or ":memory:"), durable=True)
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() != "postgresql":
        raise ConfigError(
            f'curation.store = "{address.render_as_string()}" is no database that is tested; use "memory", "sqlite", '
            "or a URL that begins with postgresql://"
        )
    try:
        waits = {name: value for name, value in SERVER.items() if name not in address.query}
        engine = create_engine(address, pool_pre_ping=True, connect_args=waits)
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"a PostgreSQL store needs {missing.name}, which is not installed: {install_command('postgres')}"
        ) from None
    if schema is not None:
        _use_schema(engine, schema)
    return engine


def schema_name(text: str) -> str:
    """Return a name for a schema that any run's name can become: letters, digits and ``_``, at most 63."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:63] or "run"


def _parsed(url: str) -> URL:
    try:
        return make_url(url.replace("postgres://", "postgresql://", 1))
    except ArgumentError:
        raise ConfigError(
            f'curation.store = "{url}" is neither "memory" nor "sqlite" nor a URL like postgresql://user@host/name'
        ) from None


def _use_schema(engine: Engine, schema: str) -> None:
    if schema != schema_name(schema):
        raise ConfigError(f"a schema is named by letters, digits and _, got {schema!r}; try {schema_name(schema)!r}")

    @event.listens_for(engine, "connect")
    def _path(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            cursor.execute(f'SET search_path TO "{schema}"')
        connection.commit()


def prepare(engine: Engine) -> None:
    """Make the tables of an empty database; refuse one with other tables.

    Raises:
        LayoutUnknown: If its tables are not those of this version of dartsim; nothing is changed.
        StoreFault: If it does not answer.
    """
    try:
        with engine.begin() as connection:
            tables = set(inspect(connection).get_table_names())
            if not tables:
                METADATA.create_all(connection)
                connection.execute(META.insert().values(key=LAYOUT_KEY, value=LAYOUT))
                return
            layout = None
            if META.name in tables:
                layout = connection.scalar(select(META.c.value).where(META.c.key == LAYOUT_KEY))
    except DBAPIError as error:
        raise fault_of(error) from error
    if layout != LAYOUT:
        raise _unknown_layout(
            f"layout {layout}" if layout else f"tables of another program ({', '.join(sorted(tables)[:3])})"
        )


def _unknown_layout(what: str) -> LayoutUnknown:
    return LayoutUnknown(
        f"the database holds {what}, and this dartsim reads layout {LAYOUT} only; give the run another folder or "
        "database"
    )
