"""The SQL store: what became of every trajectory, as rows that outlive the run.

Rows are written in transactions of many, at the latest when a batch is leased, released or trained. The
layout is SQLAlchemy's, so that any database it speaks to will do; a run keeps SQLite beside its other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    create_engine,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Engine

from dartsim.curation.store import MemoryStore, TrajectoryState
from dartsim.types import Batch, Drop, Trajectory, Version

METADATA = MetaData()

TRAJECTORIES = Table(
    "trajectories",
    METADATA,
    Column("attempt", Integer, primary_key=True, comment="number of the attempt"),
    Column("task", String, nullable=False, index=True),
    Column("group", Integer, nullable=False),
    Column("ending", String, nullable=False),
    Column("cause", String, comment="of a masked attempt"),
    Column("reward", Float, comment="null if masked"),
    Column("num_turns", Integer, nullable=False),
    Column("oldest_version", Integer, nullable=False),
    Column("newest_version", Integer, nullable=False),
    Column("started", Float, nullable=False, comment="seconds of loop time"),
    Column("finished", Float, nullable=False, comment="seconds of loop time"),
    Column("state", String, nullable=False),
    Column("reason", String, comment="of a dropped trajectory"),
    Column("update", Integer, comment="that leased or trained it"),
)

UPDATES = Table(
    "updates",
    METADATA,
    Column("update", Integer, primary_key=True),
    Column("version", Integer, nullable=False, comment="that it made"),
    Column("num_trajectories", Integer, nullable=False),
    Column("num_turns", Integer, nullable=False),
)


def open_sqlite(path: Path) -> Engine:
    """Return an engine on a SQLite file, in WAL mode so that readers can look while a run writes."""
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def _wal(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    return engine


class SqlStore:
    """Trajectories and updates as rows, with the transitions of ``MemoryStore`` and no others.

    Args:
        engine: The database; its tables are made if they are missing.
        max_pending: Changes collected before they are written as one transaction.

    Raises:
        InvariantViolated: On any other transition; nothing of it is written.
    """

    def __init__(self, engine: Engine, *, max_pending: int = 2_000) -> None:
        METADATA.create_all(engine)
        self._engine = engine
        self._max_pending = max_pending
        self._states = MemoryStore(_live(engine))
        self._rows: dict[int, dict[str, Any]] = {}
        """New trajectories, not written yet."""
        self._changes: dict[int, dict[str, Any]] = {}
        """New states of trajectories that are written."""
        self._updates: list[dict[str, Any]] = []

    def record(self, trajectory: Trajectory) -> None:
        """Keep a finished attempt."""
        self._states.record(trajectory)
        attempt = trajectory.attempt
        self._rows[attempt.id] = {
            "attempt": attempt.id,
            "task": attempt.task.id,
            "group": attempt.group,
            "ending": trajectory.ending.value,
            "cause": trajectory.cause,
            "reward": trajectory.reward,
            "num_turns": len(trajectory.turns),
            "oldest_version": trajectory.oldest_version,
            "newest_version": trajectory.newest_version,
            "started": trajectory.started,
            "finished": trajectory.finished,
            "state": TrajectoryState.RECORDED.value,
            "reason": None,
            "update": None,
        }
        self._flush_if_many()

    def lease(self, batch: Batch) -> None:
        """Mark as leased."""
        self._states.lease(batch)
        self._change(batch.trajectories, TrajectoryState.LEASED, update=batch.update)
        self.flush()

    def release(self, batch: Batch) -> None:
        """Mark as recorded again."""
        self._states.release(batch)
        self._change(batch.trajectories, TrajectoryState.RECORDED)
        self.flush()

    def trained(self, batch: Batch, version: Version) -> None:
        """Mark as trained, and keep the update."""
        self._states.trained(batch, version)
        self._change(batch.trajectories, TrajectoryState.TRAINED, update=batch.update)
        self._updates.append(
            {
                "update": batch.update,
                "version": version,
                "num_trajectories": len(batch.trajectories),
                "num_turns": batch.num_turns,
            }
        )
        self.flush()

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark as dropped."""
        self._states.drop(trajectories, reason)
        self._change(trajectories, TrajectoryState.DROPPED, reason=reason.value)
        self._flush_if_many()

    def close(self) -> None:
        """Write what is pending."""
        self.flush()

    def dispose(self) -> None:
        """Let go of the database, when nothing more will come."""
        self.flush()
        self._engine.dispose()

    def flush(self) -> None:
        """Write what is pending, as one transaction."""
        key = bindparam("key", type_=Integer)
        values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in ("state", "reason", "update")}
        with self._engine.begin() as connection:
            if self._rows:
                connection.execute(insert(TRAJECTORIES), list(self._rows.values()))
            if self._changes:
                statement = update(TRAJECTORIES).where(TRAJECTORIES.c.attempt == key).values(values)
                connection.execute(statement, list(self._changes.values()))
            if self._updates:
                connection.execute(insert(UPDATES), self._updates)
        self._rows.clear()
        self._changes.clear()
        self._updates.clear()

    def _flush_if_many(self) -> None:
        if len(self._rows) + len(self._changes) >= self._max_pending:
            self.flush()

    def _change(
        self,
        trajectories: Iterable[Trajectory],
        state: TrajectoryState,
        *,
        reason: str | None = None,
        update: int | None = None,
    ) -> None:
        for trajectory in trajectories:
            attempt = trajectory.attempt.id
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


def _live(engine: Engine) -> dict[int, TrajectoryState]:
    """Return the states of trajectories that may still change, as an earlier run left them."""
    states = [TrajectoryState.RECORDED.value, TrajectoryState.LEASED.value]
    query = select(TRAJECTORIES.c.attempt, TRAJECTORIES.c.state).where(TRAJECTORIES.c.state.in_(states))
    with engine.connect() as connection:
        return {attempt: TrajectoryState(state) for attempt, state in connection.execute(query)}
