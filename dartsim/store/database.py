"""A run's database: a SQLite file, its tables, and how to open it.

    tasks <- trajectories <- successes        updates, checkpoints
    documents: states of the scheduler and the recorder, by name

Only the process that holds the lock of the run directory writes.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dartsim.core.errors import LayoutUnknown, StoreFault, StoreFull

DATABASE_FILE, SCREENS_FOLDER, CHECKPOINTS_FOLDER = "run.db", "screens", "checkpoints"
"""File and folder names in a run directory."""
LAYOUT = 4
"""Version of these tables: increase it whenever they change."""
TABLES = {
    "tasks": "task TEXT PRIMARY KEY, instruction TEXT NOT NULL, domain TEXT NOT NULL, spec TEXT NOT NULL",
    "trajectories": """
        attempt INTEGER PRIMARY KEY,      -- below 0: collected before the run
        task TEXT NOT NULL,
        "group" INTEGER NOT NULL,
        "index" INTEGER NOT NULL,         -- place in its group
        seed INTEGER NOT NULL,
        turn_limit INTEGER NOT NULL,
        version INTEGER NOT NULL,         -- newest published one when it was admitted
        ending TEXT NOT NULL,
        cause TEXT,                       -- JSON; of a masked attempt
        reward REAL,                      -- null if masked
        score TEXT,                       -- JSON: how the reward was computed; null: by a simulated desktop
        num_turns INTEGER NOT NULL,
        oldest_version INTEGER NOT NULL,
        newest_version INTEGER NOT NULL,
        started REAL NOT NULL,            -- seconds of loop time
        finished REAL NOT NULL,
        turns BLOB,                       -- null: no longer needed
        state TEXT NOT NULL,
        reason TEXT,                      -- of a dropped trajectory
        "update" INTEGER,                 -- that leased or trained it
        ready REAL                        -- when its group became eligible; null: not yet
    """,
    "updates": """
        "update" INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,         -- that it made
        num_trajectories INTEGER NOT NULL,
        num_turns INTEGER NOT NULL
    """,
    "checkpoints": '"update" INTEGER PRIMARY KEY, folder TEXT NOT NULL, digest TEXT NOT NULL',
    "successes": "attempt INTEGER PRIMARY KEY, origin TEXT NOT NULL, stored REAL NOT NULL, uses INTEGER NOT NULL",
    "documents": "name TEXT PRIMARY KEY, text TEXT NOT NULL",
}
INDEXES = ("CREATE INDEX trajectories_by_state ON trajectories (state)",)


@contextmanager
def database_errors() -> Iterator[None]:
    """Raise SQLite's errors as faults of the store.

    Raises:
        StoreFull: If the disk is full.
        StoreFault: At any other error.
    """
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise StoreFull(f"the database's disk is full ({error}); make room, then resume the run") from error
        raise StoreFault(f"the database failed ({error}); it holds the run's last transaction") from error


def open_database(path: Path, *, durable: bool = False) -> sqlite3.Connection:
    """Open a database in WAL mode, so that others can read while a run writes.

    Args:
        path: The file; created if missing.
        durable: Whether a transaction survives a loss of power, at the cost of an fsync each. It survives the end of
            the process in any case.
    """
    with database_errors():
        database = sqlite3.connect(path.absolute(), isolation_level=None)  # SQLite might take a relative path for a URI
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    return database


def make_tables(database: sqlite3.Connection) -> None:
    """Create the tables of an empty database.

    Raises:
        LayoutUnknown: If it has other tables; nothing is changed.
    """
    with database_errors():
        if not _has_tables(database):
            database.execute("BEGIN")
            for name, columns in TABLES.items():
                database.execute(f"CREATE TABLE {name} ({columns})")
            for index in INDEXES:
                database.execute(index)
            database.execute(f"PRAGMA user_version = {LAYOUT}")
            database.commit()


@contextmanager
def reading(path: Path, *, beside_writer: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a database for reading, without changing it or the files beside it.

    Args:
        path: The database.
        beside_writer: Whether its run is going on. Then it is read where it is, which does not hold up the run; a
            database that was left behind with a log is read from a copy, because SQLite would write to the log.
    """
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    logs = [log for log in beside if log.is_file() and log.stat().st_size]
    with ExitStack() as opened:
        options = "immutable=1"
        if logs and beside_writer:
            options = "mode=ro"
        elif logs:
            folder = opened.enter_context(TemporaryDirectory(prefix="dartsim-"))
            path, options = Path(shutil.copy(path, folder)), "mode=rw"
            for log in logs:
                shutil.copy(log, folder)
        opened.enter_context(database_errors())
        yield opened.enter_context(closing(sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True)))


def stored_documents(path: Path) -> dict[str, Any]:
    """Return the documents of a database; none if it is missing or empty.

    Raises:
        LayoutUnknown: If its tables are those of another version or program.
        StoreFault: If it is damaged.
    """
    if not path.is_file():
        return {}
    with reading(path) as database:
        return read_documents(database) if _has_tables(database) else {}


def read_documents(database: sqlite3.Connection) -> dict[str, Any]:
    """Return the documents by name."""
    return {name: json.loads(text) for name, text in database.execute("SELECT name, text FROM documents")}


def _has_tables(database: sqlite3.Connection) -> bool:
    """Return whether a database has our tables; false if it is empty."""
    if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return False
    (layout,) = database.execute("PRAGMA user_version").fetchone()
    if layout != LAYOUT:
        raise LayoutUnknown(
            f"the database has layout {layout}, and this dartsim reads layout {LAYOUT} only: use another folder"
        )
    return True
