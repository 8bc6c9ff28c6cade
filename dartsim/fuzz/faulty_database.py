"""``FaultyDatabase``: a database that survives killed processes and failing stores, and checks of its contents."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from dartsim.config.schema import FaultWindow
from dartsim.core.types import WAITING, Drop, TrajectoryState, Version
from dartsim.fuzz.port_monitor import RuleViolated, StoreFacts

ERRORS = {"store_error": "disk I/O error (fuzz)", "store_full": "database or disk is full (fuzz)"}
"""Error of a failed transaction, by the kind of fault."""

COMMIT_KINDS = (*ERRORS, "killed_before_commit", "killed_after_commit")
"""Faults of transactions."""

KINDS = frozenset((*COMMIT_KINDS, "killed"))
"""All faults of the database."""


class ProcessKilled(BaseException):
    """The process ends in virtual time, inside a call; nothing is written afterwards."""


class FaultyDatabase(sqlite3.Connection):
    """A database in memory with faults of its transactions and of its process, each of which occurs once."""

    def __init__(self, faults: Sequence[FaultWindow], counts: Counter[str]) -> None:
        super().__init__(":memory:", isolation_level=None)
        self.now: Callable[[], float] = lambda: 0.0
        self.on_commit: Callable[[], None] = lambda: None
        self.on_death: Callable[[], None] = lambda: None
        self.failed = self.dead = False
        self._counts = counts
        self._pending = [fault for fault in faults if fault.kind in KINDS]

    def begin(self, now: float) -> None:
        """Begin a life of the process, without the uncommitted changes of the previous one."""
        self.rollback()
        self.now = lambda: now
        self.failed = self.dead = False
        self.on_commit = self.on_death = lambda: None

    def kills(self) -> list[FaultWindow]:
        """Return the pending kills at fixed times."""
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

    @override
    def commit(self) -> None:
        """Let a transaction succeed or fail."""
        if self.dead:
            raise sqlite3.OperationalError("of a dead process (fuzz)")
        fault = self._due()
        if fault is not None and fault.kind == "killed_before_commit":
            self.kill(fault)
        if fault is not None and fault.kind in ERRORS:
            self._use(fault)
            self.failed = True
            raise sqlite3.OperationalError(ERRORS[fault.kind])
        self.on_commit()
        super().commit()
        if fault is not None:
            self.kill(fault)

    def _due(self) -> FaultWindow | None:
        now = self.now()
        for fault in self._pending:
            if fault.kind in COMMIT_KINDS and fault.at_seconds <= now < fault.end_seconds:
                return fault
        return None


RULE = "I3"


class DatabaseState(NamedTuple):
    """Expected contents of a database after a transaction: states by attempt, other facts, the scheduler's memory."""

    states: Mapping[int, str]
    facts: StoreFacts
    learned: Any


class DatabaseChecks:
    """Checks that a database contains exactly what the store had received at its last transaction."""

    def __init__(self) -> None:
        self.lives = 1
        self.recovering = False
        self._expected = DatabaseState({}, StoreFacts(), None)
        self.read: Callable[[], DatabaseState] | None = None

    def commit(self) -> None:
        """Note what a committed transaction contains: everything so far."""
        if self.read is not None:
            self._expected = self.read()

    def at_rest(self) -> None:
        """Check, when the process dies outside of any call, that every finished update is written.

        Raises:
            RuleViolated: If one is not.
        """
        expected = self._expected.facts.version
        if self.read is not None and (done := self.read().facts.version) != expected:
            raise RuleViolated(RULE, f"{done} updates were done, and {expected} are written")

    def check(self, database: sqlite3.Connection) -> None:
        """Compare the database of an ended process with the expected contents.

        Raises:
            RuleViolated: If something was lost, doubled or reverted.
        """
        self.read = None
        database.rollback()
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return self._compare({})  # it died before it had tables
        columns = 'attempt, state, reason, "update", reward, num_turns, oldest_version, newest_version'
        found = database.execute(f"SELECT {columns} FROM trajectories").fetchall()
        updates = dict(database.execute('SELECT "update", num_trajectories FROM updates ORDER BY "update"'))
        self._compare({attempt: state for attempt, state, *_ in found})
        facts = self._expected.facts
        for attempt, _, _, _, *row in found:
            if facts.known[attempt] != tuple(row):
                raise RuleViolated(RULE, f"attempt {attempt} was recorded as {facts.known[attempt]}, and is {row}")
        reasons = Counter(reason for _, _, reason, *_ in found if reason is not None)
        if reasons != {reason: n for reason in Drop if (n := facts.tally[f"dropped/{reason}"])}:
            raise RuleViolated(RULE, f"dropped are {dict(reasons)}; expected: {facts.tally}")
        version = self._expected.facts.version
        if list(updates) != list(range(1, version + 1)):
            raise RuleViolated(RULE, f"{version} updates were written, the database has {list(updates)}")
        trained = Counter(update for _, state, _, update, *_ in found if state == TrajectoryState.TRAINED)
        if trained != updates:
            raise RuleViolated(RULE, f"updates trained {updates} trajectories, and {dict(trained)} are marked")

    def _compare(self, rows: Mapping[int, str]) -> None:
        expected = self._expected.states
        if lost := sorted(expected.keys() - rows.keys()):
            raise RuleViolated(RULE, f"attempts {lost} were written, and are gone")
        if more := sorted(rows.keys() - expected.keys()):
            raise RuleViolated(RULE, f"attempts {more} are stored, of which nothing was written")
        for attempt, state in rows.items():
            given_back = self.recovering and expected[attempt] == TrajectoryState.LEASED.value and state in WAITING
            if state != expected[attempt] and not given_back:
                raise RuleViolated(RULE, f"attempt {attempt} was written as {expected[attempt]}, and is {state}")

    def begin(self, database: sqlite3.Connection, version: Version) -> DatabaseState:
        """Return the state that the next life finds after recovery.

        Raises:
            RuleViolated: If an update is lost, or a batch was not returned.
        """
        self.recovering = False
        _, facts, learned = self._expected
        if version != facts.version:
            raise RuleViolated(RULE, f"{facts.version} updates were done, and life {self.lives} begins with {version}")
        found = dict(database.execute("SELECT attempt, state FROM trajectories"))
        if leased := [attempt for attempt, state in found.items() if state == TrajectoryState.LEASED.value]:
            raise RuleViolated(RULE, f"attempts {leased} are leased to an abandoned update")
        self._expected = DatabaseState(found, facts.after_crash(), None)
        return DatabaseState(found, facts.after_crash(), learned)
