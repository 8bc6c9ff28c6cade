"""``FaultyDatabase``: the database of a case whose process is killed or whose store fails; it outlives the process."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from dartsim.config.schema import FaultWindow
from dartsim.store.database import open_in_memory

ERRORS = {"store_error": "disk I/O error (fuzz)", "store_full": "database or disk is full (fuzz)"}
"""What the database says when it refuses a transaction, by the kind of fault."""

COMMIT_KINDS = (*ERRORS, "killed_before_commit", "killed_after_commit")
"""Kinds of faults of transactions."""

KINDS = frozenset((*COMMIT_KINDS, "killed"))
"""All kinds of faults that are injected here."""


class ProcessKilled(BaseException):
    """The end of a process in virtual time, inside a call; what its remains do is written nowhere."""


class FaultyDatabase:
    """A database in memory, with the faults of its transactions and of the process that writes to it.

    Each of these faults happens once in a run: whoever resumes the run has made room before.

    Args:
        faults: Of the case; those of other components are left out.
        counts: Where faults are counted.

    Attributes:
        engine: The database.
        now: Virtual time, seconds; that of the last life's end while nothing runs.
        on_commit: Called when a transaction is written for good.
        on_death: Called when the process is killed.
        failed: Whether a transaction of the present life was refused.
        dead: Whether the present life was killed.
    """

    def __init__(self, faults: Sequence[FaultWindow], counts: Counter[str]) -> None:
        self.engine = open_in_memory()
        self.now: Callable[[], float] = lambda: 0.0
        self.on_commit: Callable[[], None] = lambda: None
        self.on_death: Callable[[], None] = lambda: None
        self.failed = self.dead = False
        self._counts = counts
        self._pending = [fault for fault in faults if fault.kind in KINDS]
        event.listen(self.engine, "commit", self._commit)

    def begin(self, now: float) -> None:
        """A life begins."""
        self.now = lambda: now
        self.failed = self.dead = False
        self.on_commit = self.on_death = lambda: None

    def kills(self) -> list[FaultWindow]:
        """Return the kills at set instants that are to come."""
        return [fault for fault in self._pending if fault.kind == "killed"]

    def kill(self, fault: FaultWindow) -> None:
        """End the process.

        Raises:
            ProcessKilled: Always.
        """
        self._use(fault)
        self.dead = True
        self.on_death()
        raise ProcessKilled(fault.kind)

    def _use(self, fault: FaultWindow) -> None:
        self._pending.remove(fault)
        self._counts[f"fault/{fault.kind}"] += 1

    def _commit(self, connection: Connection) -> None:
        """Let a transaction be written, or not; called before it is."""
        if self.dead:
            raise _refused("of a dead process (fuzz)")
        fault = self._due()
        if fault is not None and fault.kind == "killed_before_commit":
            self.kill(fault)
        if fault is not None and fault.kind in ERRORS:
            self._use(fault)
            self.failed = True
            raise _refused(ERRORS[fault.kind])
        self.on_commit()
        if fault is not None:
            driver = connection.connection.dbapi_connection
            assert driver is not None
            driver.commit()
            self.kill(fault)

    def _due(self) -> FaultWindow | None:
        now = self.now()
        for fault in self._pending:
            if fault.kind in COMMIT_KINDS and fault.at_seconds <= now < fault.end_seconds:
                return fault
        return None


def _refused(text: str) -> OperationalError:
    return OperationalError("COMMIT", {}, sqlite3.OperationalError(text))
