"""``Writer``: transactions in order, each exactly once, by the one process that may write.

The database holds a mark ``<process>:<transaction>``. Every transaction moves it on by one, if it is where this
process left it. So a process that was taken for dead cannot write after its successor has begun; and a transaction
whose outcome was lost with a connection is not written twice: its mark tells whether it was.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import Executable

from dartsim.store.errors import StoreFault, StoreFull, TakenOver
from dartsim.store.sql.tables import META

Step = tuple[Executable, Sequence[dict[str, Any]] | None] | tuple[Table, Sequence[tuple[Any, ...]]]
"""A statement, with the rows it is done for, or None to do it once; or a table, with all columns of new rows."""
WRITER = "writer"
"""Key of the mark."""
_MOVE = update(META).where(META.c.key == WRITER, META.c.value == bindparam("was")).values(value=bindparam("will_be"))


class Writer:
    """Writes to a database, in the place of whoever did before.

    Invariant: a transaction is written once, after all that were submitted before it, or a fault is raised and it
    stays first in line.

    Args:
        engine: The database, with its tables.

    Raises:
        StoreFault: If the database cannot be written.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._line: deque[list[Step]] = deque()
        self._written = 0
        try:
            self._process = _take_over(engine)
        except DBAPIError as error:
            raise fault_of(error) from error

    @property
    def waiting(self) -> int:
        """Transactions that were submitted and are not known to be written."""
        return len(self._line)

    def write(self, steps: Sequence[Step]) -> None:
        """Write a transaction, after what is still in line.

        Raises:
            StoreFull: If there was no room.
            TakenOver: If another process writes now.
            StoreFault: If the database did not answer; it may be called again, with nothing new.
        """
        if steps:
            self._line.append(list(steps))
        while self._line:
            self._write_first()

    def _write_first(self) -> None:
        try:
            with self._engine.begin() as connection:
                if self._move_mark(connection):
                    for step in self._line[0]:
                        _do(connection, step)
        except DBAPIError as error:
            raise fault_of(error) from error
        self._written += 1
        self._line.popleft()

    def _move_mark(self, connection: Connection) -> bool:
        """Move the mark on; return False if it was, by this very transaction, whose outcome was not known."""
        was, will_be = self._mark(self._written), self._mark(self._written + 1)
        if connection.execute(_MOVE, {"was": was, "will_be": will_be}).rowcount:
            return True
        found = connection.scalar(select(META.c.value).where(META.c.key == WRITER))
        if found == will_be:
            return False
        raise TakenOver(
            f"another process writes to this run now (its mark is {found}, wanted {was}); this one must end. "
            "A run is continued by one process at a time"
        )

    def _mark(self, number: int) -> str:
        return f"{self._process}:{number}"


def _do(connection: Connection, step: Step) -> None:
    what: Any
    rows: Any
    what, rows = step
    if not isinstance(what, Table):
        if rows is None:
            connection.execute(what)
        elif rows:
            connection.execute(what, rows)
    elif rows and connection.dialect.name == "sqlite":
        # Past SQLAlchemy: a row of a turn costs a third of what it would otherwise.
        places = ", ".join("?" * len(what.columns))
        connection.exec_driver_sql(f"INSERT INTO {what.name} VALUES ({places})", list(rows))
    elif rows:
        names = [column.name for column in what.columns]
        connection.execute(insert(what), [dict(zip(names, row, strict=True)) for row in rows])


def _take_over(engine: Engine) -> int:
    """Become the writer: from here on, transactions of an earlier one are refused. Return this process's number."""
    with engine.begin() as connection:
        # A write first: whoever comes second waits here, and then reads what the first one wrote.
        connection.execute(update(META).where(META.c.key == WRITER).values(value=META.c.value))
        found = connection.scalar(select(META.c.value).where(META.c.key == WRITER))
        if found is None:
            connection.execute(insert(META).values(key=WRITER, value="1:0"))
            return 1
        process = int(found.partition(":")[0]) + 1
        connection.execute(update(META).where(META.c.key == WRITER).values(value=f"{process}:0"))
        return process


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Give a connection to read from.

    Raises:
        StoreFault: If the database does not answer.
    """
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise fault_of(error) from error


def fault_of(error: DBAPIError) -> StoreFault:
    """Return what a driver's error means here."""
    cause = error.orig
    words = str(cause).strip().splitlines()[:1]
    text = words[0] if words else type(cause).__name__
    full = (
        "disk is full" in text
        or getattr(cause, "sqlstate", None) == "53100"
        or getattr(cause, "errno", None) == errno.ENOSPC
    )
    if full:
        return StoreFull(f"the database's disk is full ({text}); make room, then resume the run")
    return StoreFault(f"the database did not take a transaction ({text}); nothing of it is written")
