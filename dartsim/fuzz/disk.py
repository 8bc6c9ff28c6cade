"""``Disk``: the database of a case whose process is killed, or whose store fails; it outlives the process."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from dartsim.fuzz.cases import Fault
from dartsim.fuzz.faults import KINDS
from dartsim.store.database import open_in_memory

WORDS = {"fail": "disk I/O error (fuzz)", "full": "database or disk is full (fuzz)"}
"""What the database says, by the effect of the fault."""


class Killed(BaseException):
    """The end of a process in virtual time, inside a call; what its remains do is written nowhere."""


class Disk:
    """A database in memory, and what strikes it and the process that writes to it.

    Each of these faults strikes once in a run: who resumes it has made room before.

    Args:
        faults: Of the case; those of other parts are left out.
        struck: Where strikes are counted.

    Attributes:
        engine: The database.
        now: Virtual time, seconds; that of the last life's end while nothing runs.
        on_commit: Called when a transaction is written for good.
        on_death: Called when the process is killed.
        failed: Whether a transaction of the present life was refused.
        dead: Whether the present life was killed.
    """

    def __init__(self, faults: Sequence[Fault], struck: Counter[str]) -> None:
        self.engine = open_in_memory()
        self.now: Callable[[], float] = lambda: 0.0
        self.on_commit: Callable[[], None] = lambda: None
        self.on_death: Callable[[], None] = lambda: None
        self.failed = self.dead = False
        self._struck = struck
        self._waiting = [fault for fault in faults if KINDS[fault.kind].part in ("process", "store")]
        event.listen(self.engine, "commit", self._commit)

    def begin(self, now: float) -> None:
        """A life begins."""
        self.now = lambda: now
        self.failed = self.dead = False
        self.on_commit = self.on_death = lambda: None

    def kills(self) -> list[Fault]:
        """Return the kills at set instants that are to come."""
        return [fault for fault in self._waiting if fault.kind == "killed"]

    def kill(self, fault: Fault) -> None:
        """End the process.

        Raises:
            Killed: Always.
        """
        self._strike(fault)
        self.dead = True
        self.on_death()
        raise Killed(fault.kind)

    def _strike(self, fault: Fault) -> None:
        self._waiting.remove(fault)
        self._struck[fault.kind] += 1

    def _commit(self, connection: Connection) -> None:
        """Let a transaction be written, or not; called before it is."""
        if self.dead:
            raise _refused("of a dead process (fuzz)")
        fault = self._due()
        effect = None if fault is None else KINDS[fault.kind].effect
        if fault is not None and effect == "kill before":
            self.kill(fault)
        if fault is not None and effect in WORDS:
            self._strike(fault)
            self.failed = True
            raise _refused(WORDS[effect])
        self.on_commit()
        if fault is not None:
            driver = connection.connection.dbapi_connection
            assert driver is not None
            driver.commit()
            self.kill(fault)

    def _due(self) -> Fault | None:
        now = self.now()
        for fault in self._waiting:
            if KINDS[fault.kind].point == "commit" and fault.start <= now < fault.end:
                return fault
        return None


def _refused(words: str) -> OperationalError:
    return OperationalError("COMMIT", {}, sqlite3.OperationalError(words))
