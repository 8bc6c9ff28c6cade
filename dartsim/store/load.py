"""Trajectories back from a run's database and files, as they were recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql.elements import ColumnElement

from dartsim.core.errors import TornFile, TornRecord
from dartsim.core.types import ScoreRecord, StoredSuccess, SuccessSource, Task, Trajectory, TrajectoryState, Turn
from dartsim.store.blobs import BlobStore
from dartsim.store.rows import NO_ROOM, original, score_record, task_of, trajectory_of, turn_of
from dartsim.store.tables import SUCCESSES, TASKS, TRAJECTORIES, TURNS
from dartsim.store.transactions import reading

AT_ONCE = 100
"""Trajectories that are read at a time."""


class Torn(NamedTuple):
    """A trajectory that cannot be read back, and why."""

    attempt: int
    why: str


class StoredScore(NamedTuple):
    """How a stored attempt's reward was computed."""

    attempt: int
    task: str
    record: ScoreRecord


def load_scores(engine: Engine) -> list[StoredScore]:
    """Return how rewards were computed, by attempt; none of a simulated desktop's."""
    columns = TRAJECTORIES.c
    query = select(columns.attempt, columns.task, columns.score).where(columns.score.is_not(None))
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(columns.attempt)).all()
    return [StoredScore(row.attempt, row.task, score_record(original(row.score))) for row in rows]


def load_trajectories(
    engine: Engine,
    *,
    blobs: BlobStore | None = None,
    states: Iterable[TrajectoryState] | None = None,
    attempts: Iterable[int] | None = None,
    tasks: Iterable[str] | None = None,
    on_torn: Callable[[Torn], None] | None = None,
) -> Iterator[Trajectory]:
    """Yield stored trajectories, in the order of their attempts, with everything that was recorded.

    Tokens are int32, log-probabilities and entropies float32. Only some are read at a time, so that a whole run need
    not fit in memory.

    Args:
        engine: The run's database, of the present layout.
        blobs: Its files; without them, a trajectory that had screenshots counts as torn.
        states: Only those in these states.
        attempts: Only these.
        tasks: Only those of these tasks.
        on_torn: Called with those that cannot be read back, which are left out.

    Raises:
        TornRecord: At the first one that cannot be read back, without ``on_torn``.
        StoreFault: If the database does not answer.
    """
    columns = TRAJECTORIES.c
    conditions: list[ColumnElement[bool]] = []
    if states is not None:
        conditions.append(columns.state.in_([state.value for state in states]))
    if tasks is not None:
        conditions.append(columns.task.in_(list(tasks)))
    with reading(engine) as connection:
        numbers = connection.scalars(select(columns.attempt).where(*conditions).order_by(columns.attempt)).all()
    if attempts is not None:
        among = set(attempts)
        numbers = [attempt for attempt in numbers if attempt in among]
    for at in range(0, len(numbers), AT_ONCE):
        with reading(engine) as connection:
            read = list(_read(connection, numbers[at : at + AT_ONCE], blobs))
        for record in read:
            if isinstance(record, Trajectory):
                yield record
            elif on_torn is not None:
                on_torn(record)
            else:
                raise TornRecord(f"attempt {record.attempt} cannot be read back: {record.why}")


def _read(connection: Connection, attempts: Sequence[int], blobs: BlobStore | None) -> Iterator[Trajectory | Torn]:
    columns = TRAJECTORIES.c
    query = select(TRAJECTORIES).where(columns.attempt.in_(attempts))
    rows = {row["attempt"]: row for row in connection.execute(query).mappings()}
    named = {row["task"] for row in rows.values()}
    task_rows = connection.execute(select(TASKS).where(TASKS.c.task.in_(named))).mappings()
    tasks = {row["task"]: task_of(row) for row in task_rows}
    turns: dict[int, list[Any]] = {attempt: [] for attempt in attempts}
    turn_query = select(TURNS).where(TURNS.c.attempt.in_(attempts)).order_by(TURNS.c.attempt, TURNS.c.turn)
    for turn in connection.execute(turn_query):
        turns[turn[0]].append(turn)
    for attempt in attempts:
        row = rows[attempt]
        if row["kept_bytes"] is None or row["task"] not in tasks:
            yield Torn(attempt, "its turns are not kept")
            continue
        task = tasks[row["task"]]
        try:
            yield trajectory_of(row, task, _turns(turns[attempt], row["num_turns"], task, blobs))
        except (TornFile, TornRecord) as fault:
            yield Torn(attempt, str(fault))


def _turns(rows: Sequence[Any], num_turns: int, task: Task, blobs: BlobStore | None) -> list[Turn]:
    if [row.turn for row in rows] != list(range(num_turns)):
        raise TornRecord(f"{len(rows)} turns are stored, {num_turns} were recorded")
    turns = []
    for row in rows:
        screenshot = None if row.screenshot is None else _files(blobs, row.screenshot).get(row.screenshot)
        tree = None if row.tree is None else _files(blobs, row.tree).get_text(row.tree)
        turns.append(turn_of(row, task.instruction, screenshot, tree))
    return turns


def _files(blobs: BlobStore | None, name: str) -> BlobStore:
    if name == NO_ROOM:
        raise TornRecord("there was no room for a screenshot of it")
    if blobs is None:
        raise TornRecord("its screenshots are in another place")
    return blobs


def load_successes(
    engine: Engine, *, blobs: BlobStore | None = None, on_torn: Callable[[Torn], None] | None = None
) -> list[StoredSuccess]:
    """Return the stored successes as ``SqlStore.keep_successes`` left them, in the order in which they were stored."""
    with reading(engine) as connection:
        rows = {row.attempt: row for row in connection.execute(select(SUCCESSES))}
    successes = [
        StoredSuccess(
            trajectory=trajectory,
            origin=SuccessSource(rows[trajectory.attempt.id].origin),
            stored=rows[trajectory.attempt.id].stored,
            uses=rows[trajectory.attempt.id].uses,
        )
        for trajectory in load_trajectories(engine, blobs=blobs, attempts=rows, on_torn=on_torn)
    ]
    return sorted(successes, key=lambda entry: (entry.stored, abs(entry.trajectory.attempt.id)))
