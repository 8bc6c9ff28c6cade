"""Loading trajectories from a run's database and files, exactly as they were recorded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dartsim.core.errors import TornFile, TornRecord
from dartsim.core.types import ScoreRecord, StoredSuccess, SuccessSource, Trajectory, TrajectoryState
from dartsim.store.blobs import BlobStore
from dartsim.store.database import database_errors, reading
from dartsim.store.rows import score_record, task_of, trajectory_of


class Torn(NamedTuple):
    """A trajectory that cannot be read, and why."""

    attempt: int
    why: str


class StoredScore(NamedTuple):
    """How a stored attempt's reward was computed."""

    attempt: int
    task: str
    record: ScoreRecord


def load_scores(path: Path) -> list[StoredScore]:
    """Return how rewards were computed, by attempt; simulated desktops have none. Safe while a run writes.

    Raises:
        StoreFault: If the database is damaged.
    """
    with reading(path) as database:
        rows = database.execute(
            "SELECT attempt, task, score FROM trajectories WHERE score IS NOT NULL ORDER BY attempt"
        ).fetchall()
    return [StoredScore(attempt, task, score_record(score)) for attempt, task, score in rows]


def load_trajectories(
    database: sqlite3.Connection,
    *,
    blobs: BlobStore | None = None,
    states: Iterable[TrajectoryState] | None = None,
    attempts: Iterable[int] | None = None,
    on_torn: Callable[[Torn], None] | None = None,
) -> Iterator[Trajectory]:
    """Yield stored trajectories in the order of their attempts, with everything that was recorded.

    Tokens are int32, log-probabilities and entropies float32. Trajectories are read one at a time, so a run may be
    larger than memory.

    Args:
        database: The run's.
        blobs: The run's files; without them, a trajectory with screenshots counts as torn.
        states: Only those in these states.
        attempts: Only these.
        on_torn: Called with each unreadable trajectory, which is skipped.

    Raises:
        TornRecord: At the first unreadable trajectory, without ``on_torn``.
        StoreFault: If the database is damaged.
    """
    with database_errors():
        found = list(database.execute("SELECT attempt, state FROM trajectories ORDER BY attempt"))
        tasks = {row[0]: task_of(row) for row in database.execute("SELECT * FROM tasks")}
    wanted = None if attempts is None else set(attempts)
    among = None if states is None else {state.value for state in states}
    for attempt, state in found:
        if (wanted is not None and attempt not in wanted) or (among is not None and state not in among):
            continue
        with database_errors():
            cursor = database.execute("SELECT * FROM trajectories WHERE attempt = ?", (attempt,))
            row = dict(zip((column[0] for column in cursor.description), cursor.fetchone(), strict=True))
        try:
            if row["task"] not in tasks:
                raise TornRecord("its task is not stored")
            yield trajectory_of(row, tasks[row["task"]], blobs)
        except (TornFile, TornRecord) as fault:
            if on_torn is None:
                raise TornRecord(f"attempt {attempt} cannot be read back: {fault}") from None
            on_torn(Torn(attempt, str(fault)))


def load_successes(
    database: sqlite3.Connection, *, blobs: BlobStore | None = None, on_torn: Callable[[Torn], None] | None = None
) -> list[StoredSuccess]:
    """Return the stored successes as of the last ``settle``, in the order in which they were stored."""
    with database_errors():
        rows = {row[0]: row[1:] for row in database.execute("SELECT attempt, origin, stored, uses FROM successes")}
    successes = []
    for trajectory in load_trajectories(database, blobs=blobs, attempts=rows, on_torn=on_torn):
        origin, stored, uses = rows[trajectory.attempt.id]
        successes.append(StoredSuccess(trajectory=trajectory, origin=SuccessSource(origin), stored=stored, uses=uses))
    return sorted(successes, key=lambda entry: (entry.stored, abs(entry.trajectory.attempt.id)))
