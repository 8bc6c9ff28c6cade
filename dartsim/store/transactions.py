"""``Writer``: transactions in order, each exactly once, by the one process that may write.

The database holds a mark ``<process>:<transaction>``. Every transaction moves it on by one, if it is where this
process left it. So a process that was believed dead cannot write after its successor has begun; and a transaction
whose outcome was lost with a connection is not written twice: its mark shows whether it was written.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Integer, Table, bindparam, insert, select, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import Executable

from dartsim.core.errors import StoreFault, StoreFull, TakenOver
from dartsim.core.types import Trajectory, TrajectoryState
from dartsim.store.rows import NO_FILES, TurnFiles, task_row, trajectory_row, turn_rows
from dartsim.store.tables import BLOBS, META, TASKS, TRAJECTORIES, TURNS, WRITER_KEY

Step = tuple[Executable, Sequence[dict[str, Any]] | None] | tuple[Table, Sequence[tuple[Any, ...]]]
"""A statement, with the rows it is done for, or None to do it once; or a table, with all columns of new rows."""
_MOVE = (
    update(META).where(META.c.key == WRITER_KEY, META.c.value == bindparam("was")).values(value=bindparam("will_be"))
)


class Writer:
    """Writes to a database, in place of the previous writer.

    Invariant: a transaction is written once, after all that were submitted before it, or a fault is raised and it
    stays first in line.

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
        """Advance the mark; return False if this very transaction had advanced it, with an unknown outcome."""
        was, will_be = self._mark(self._written), self._mark(self._written + 1)
        if connection.execute(_MOVE, {"was": was, "will_be": will_be}).rowcount:
            return True
        mark = connection.scalar(select(META.c.value).where(META.c.key == WRITER_KEY))
        if mark == will_be:
            return False
        raise TakenOver(
            f"another process writes to this run now (its mark is {mark}, wanted {was}); this one must end. "
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
    """Become the writer, which refuses transactions of earlier ones; return this process's number."""
    with engine.begin() as connection:
        # A write first: the second of two processes waits here, and then reads what the first one wrote.
        connection.execute(update(META).where(META.c.key == WRITER_KEY).values(value=META.c.value))
        mark = connection.scalar(select(META.c.value).where(META.c.key == WRITER_KEY))
        if mark is None:
            connection.execute(insert(META).values(key=WRITER_KEY, value="1:0"))
            return 1
        process = int(mark.partition(":")[0]) + 1
        connection.execute(update(META).where(META.c.key == WRITER_KEY).values(value=f"{process}:0"))
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
    """Return the fault that a driver's error means."""
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


_KEY = bindparam("key", type_=Integer)
_CHANGE = (
    update(TRAJECTORIES)
    .where(TRAJECTORIES.c.attempt == _KEY)
    .values({name: bindparam(f"new_{name}") for name in ("state", "reason", "update")})
)
_READY = update(TRAJECTORIES).where(TRAJECTORIES.c.attempt == _KEY).values(ready=bindparam("new_ready"))


class Pending:
    """Rows and changes that become one transaction."""

    def __init__(self, known_tasks: Iterable[str]) -> None:
        self._known_tasks = set(known_tasks)
        self._begin()

    def _begin(self) -> None:
        self._tasks: list[dict[str, Any]] = []
        self._rows: dict[int, dict[str, Any]] = {}
        """New trajectories."""
        self._turns: dict[int, list[tuple[Any, ...]]] = {}
        """Theirs."""
        self._later: dict[int, Trajectory] = {}
        """New ones without files, whose turns become rows when they are written: some never are."""
        self._blobs: list[dict[str, Any]] = []
        self._changes: dict[int, dict[str, Any]] = {}
        """New states of trajectories that are written."""
        self._ready: list[dict[str, Any]] = []
        self._steps: list[Step] = []
        self.num_turns = 0

    def __len__(self) -> int:
        return len(self._rows) + len(self._changes)

    def __contains__(self, attempt: int) -> bool:
        return attempt in self._rows

    def add(self, trajectory: Trajectory, files: Sequence[TurnFiles] | None, *, state: str) -> int:
        """Add a trajectory; return the size of its turns in bytes, as far as it counts now."""
        attempt, task = trajectory.attempt.id, trajectory.attempt.task
        row = trajectory_row(trajectory, state)
        if task.id not in self._known_tasks:
            self._known_tasks.add(task.id)
            self._tasks.append(task_row(task))
        self._rows[attempt] = row
        if files is None:
            return 0
        self.num_turns += len(files)
        if all(files is NO_FILES for files in files):
            self._later[attempt] = trajectory
            return 0
        self._turns[attempt], row["kept_bytes"] = turn_rows(trajectory, files)
        return int(row["kept_bytes"])

    def add_turns(self, trajectory: Trajectory, files: Sequence[TurnFiles]) -> int:
        """Add the turns of a trajectory that is written without them; return their size in bytes."""
        attempt = trajectory.attempt.id
        self._turns[attempt], size = turn_rows(trajectory, files)
        self.num_turns += len(files)
        self.then(update(TRAJECTORIES).where(TRAJECTORIES.c.attempt == attempt).values(kept_bytes=size))
        return size

    def add_blobs(self, rows: Iterable[tuple[str, int]]) -> None:
        self._blobs.extend({"blob": name, "num_bytes": size} for name, size in rows)

    def change(
        self,
        attempts: Iterable[int],
        state: TrajectoryState,
        *,
        reason: str | None = None,
        update: int | None = None,
    ) -> None:
        for attempt in attempts:
            row = self._rows.get(attempt)
            if row is not None:
                row.update(state=state.value, reason=reason, update=update)
            else:
                self._changes[attempt] = {
                    "key": attempt,
                    "new_state": state.value,
                    "new_reason": reason,
                    "new_update": update,
                }

    def ready(self, attempts: Iterable[int], at: float) -> None:
        """Say when trajectories became eligible."""
        for attempt in attempts:
            row = self._rows.get(attempt)
            if row is not None:
                row["ready"] = at
            else:
                self._ready.append({"key": attempt, "new_ready": at})

    def then(self, *statements: Any) -> None:
        """Execute statements afterwards, in the same transaction."""
        self._steps.extend((statement, None) for statement in statements)

    def then_rows(self, statement: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Execute a statement for rows afterwards, in the same transaction."""
        self._steps.append((statement, rows))

    def without_turns(self, attempt: int) -> bool:
        """Omit the turns of a trajectory if they are not written and have no files; return whether they were."""
        trajectory = self._later.pop(attempt, None)
        if trajectory is None:
            return False
        self.num_turns -= len(trajectory.turns)
        return True

    def take(self) -> tuple[list[Step], int]:
        """Return everything as the steps of a transaction, and the bytes not counted yet; start over."""
        num_bytes = 0
        for attempt, trajectory in self._later.items():
            self._turns[attempt], size = turn_rows(trajectory, [NO_FILES] * len(trajectory.turns))
            self._rows[attempt]["kept_bytes"] = size
            num_bytes += size
        steps: list[Step] = [
            (insert(TASKS), self._tasks),
            (insert(BLOBS), self._blobs),
            (insert(TRAJECTORIES), list(self._rows.values())),
            (TURNS, [row for rows in self._turns.values() for row in rows]),
            (_CHANGE, list(self._changes.values())),
            (_READY, self._ready),
            *self._steps,
        ]
        self._begin()
        return [step for step in steps if step[1] is None or step[1]], num_bytes
