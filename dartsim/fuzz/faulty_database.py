"""``FaultyDatabase``: a database that outlives killed processes and failing stores, and checks of what it holds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import event, inspect, select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError

from dartsim.config.schema import FaultWindow
from dartsim.core.types import WAITING, Drop, TrajectoryState, Version
from dartsim.fuzz.port_monitor import RuleViolated, StoreFacts
from dartsim.store.database import open_in_memory
from dartsim.store.tables import BATCH_MEMBERS, BATCHES, TRAJECTORIES, UPDATES

ERRORS = {"store_error": "disk I/O error (fuzz)", "store_full": "database or disk is full (fuzz)"}
"""Error of a failed transaction, by the kind of fault."""

COMMIT_KINDS = (*ERRORS, "killed_before_commit", "killed_after_commit")
"""Faults of transactions."""

KINDS = frozenset((*COMMIT_KINDS, "killed"))
"""All faults of the database."""


class ProcessKilled(BaseException):
    """The process ends in virtual time, inside a call; nothing is written afterwards."""


class FaultyDatabase:
    """A database in memory, with faults of its transactions and of its process, each once in a run."""

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
        self.now = lambda: now
        self.failed = self.dead = False
        self.on_commit = self.on_death = lambda: None

    def kills(self) -> list[FaultWindow]:
        """Return the pending kills at set times."""
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
        """Let a transaction succeed or fail; called before it is written."""
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


RULE = "I3"


class Told(NamedTuple):
    """What a database was told until a transaction: states by attempt, other facts, what the scheduler has learned."""

    states: Mapping[int, str]
    facts: StoreFacts
    learned: Any


class DatabaseChecks:
    """Checks that a database contains exactly what the store was told until its last transaction."""

    def __init__(self) -> None:
        self.lives = 1
        self.recovering = False
        self._told = Told({}, StoreFacts(), None)
        self.read: Callable[[], Told] | None = None

    def commit(self) -> None:
        """Note what a committed transaction contains: everything so far."""
        if self.read is not None:
            self._told = self.read()

    def at_rest(self) -> None:
        """Check, when the process dies outside of any call, that every finished update is written.

        Raises:
            RuleViolated: If one is not.
        """
        told = self._told.facts.version
        if self.read is not None and (done := self.read().facts.version) != told:
            raise RuleViolated(RULE, f"{done} updates were done, and {told} are written")

    def check(self, engine: Engine) -> None:
        """Compare the database of an ended process with what it was told.

        Raises:
            RuleViolated: If something was lost, doubled or reverted.
        """
        self.read = None
        if not inspect(engine).has_table(TRAJECTORIES.name):
            return self._compare({})  # it died before it had tables
        with engine.connect() as connection:
            found = connection.execute(select(TRAJECTORIES)).all()
            rows = {row.attempt: row.state for row in found}
            updates = list(connection.scalars(select(UPDATES.c.update).order_by(UPDATES.c.update)))
            joined = BATCH_MEMBERS.join(BATCHES, BATCHES.c.batch == BATCH_MEMBERS.c.batch)
            members = select(BATCH_MEMBERS.c.attempt).select_from(joined).where(BATCHES.c.state == "trained")
            times = Counter(connection.scalars(members))
        self._compare(rows)
        facts = self._told.facts
        for row in found:
            told = facts.known[row.attempt]
            if told != (row.reward, row.num_turns, row.oldest_version, row.newest_version):
                raise RuleViolated(RULE, f"attempt {row.attempt} was recorded as {told}, and is {row}")
        reasons = Counter(row.reason for row in found if row.reason is not None)
        if reasons != {reason: n for reason in Drop if (n := facts.tally[f"dropped/{reason}"])}:
            raise RuleViolated(RULE, f"dropped are {dict(reasons)}; told were other reasons: {facts.tally}")
        version = self._told.facts.version
        if updates != list(range(1, version + 1)):
            raise RuleViolated(RULE, f"{version} updates were written, the database has {updates}")
        trained = {attempt for attempt, state in rows.items() if state == TrajectoryState.TRAINED.value}
        if doubled := sorted(attempt for attempt, number in times.items() if number > 1):
            raise RuleViolated(RULE, f"attempts {doubled} are in several updates")
        if apart := sorted(trained ^ times.keys()):
            raise RuleViolated(RULE, f"attempts {apart} are trained without an update, or the other way round")

    def _compare(self, rows: Mapping[int, str]) -> None:
        told = self._told.states
        if lost := sorted(told.keys() - rows.keys()):
            raise RuleViolated(RULE, f"attempts {lost} were written, and are gone")
        if more := sorted(rows.keys() - told.keys()):
            raise RuleViolated(RULE, f"attempts {more} are stored, of which nothing was written")
        for attempt, state in rows.items():
            given_back = self.recovering and told[attempt] == TrajectoryState.LEASED.value and state in WAITING
            if state != told[attempt] and not given_back:
                raise RuleViolated(RULE, f"attempt {attempt} was written as {told[attempt]}, and is {state}")

    def begin(self, engine: Engine, version: Version) -> Told:
        """Return what the next life finds after recovery.

        Raises:
            RuleViolated: If an update is lost, or a batch was not returned.
        """
        self.recovering = False
        _, facts, learned = self._told
        if version != facts.version:
            raise RuleViolated(RULE, f"{facts.version} updates were done, and life {self.lives} begins with {version}")
        with engine.connect() as connection:
            rows = connection.execute(select(TRAJECTORIES.c.attempt, TRAJECTORIES.c.state))
            found = {row.attempt: row.state for row in rows}
        if leased := [attempt for attempt, state in found.items() if state == TrajectoryState.LEASED.value]:
            raise RuleViolated(RULE, f"attempts {leased} are leased to an abandoned update")
        self._told = Told(found, facts.crashed(), None)
        return Told(found, facts.crashed(), learned)
