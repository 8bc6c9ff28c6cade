"""What was told to the store and is not written yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Integer, bindparam, insert, update

from dartsim.core.types import Trajectory
from dartsim.store.memory import TrajectoryState
from dartsim.store.sql.rows import UNSEEN, Seen, task_row, trajectory_row, turn_rows
from dartsim.store.sql.tables import BLOBS, TASKS, TRAJECTORIES, TURNS
from dartsim.store.sql.writer import Step

_KEY = bindparam("key", type_=Integer)
_CHANGE = (
    update(TRAJECTORIES)
    .where(TRAJECTORIES.c.attempt == _KEY)
    .values({name: bindparam(f"new_{name}") for name in ("state", "reason", "update")})
)
_READY = update(TRAJECTORIES).where(TRAJECTORIES.c.attempt == _KEY).values(ready=bindparam("new_ready"))


class Pending:
    """Rows and changes that become one transaction.

    Args:
        known_tasks: Tasks that are written.
    """

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
        """Whether a trajectory is new and not written yet."""
        return attempt in self._rows

    def add(self, trajectory: Trajectory, seen: Sequence[Seen] | None, *, state: str) -> int:
        """Add a trajectory; return the size of its turns in bytes, as far as it counts now.

        Args:
            trajectory: It.
            seen: The files of its turns; None: its turns are not kept.
            state: Its state.
        """
        attempt, task = trajectory.attempt.id, trajectory.attempt.task
        row = trajectory_row(trajectory, state)
        if task.id not in self._known_tasks:
            self._known_tasks.add(task.id)
            self._tasks.append(task_row(task))
        self._rows[attempt] = row
        if seen is None:
            return 0
        self.num_turns += len(seen)
        if all(files is UNSEEN for files in seen):
            self._later[attempt] = trajectory
            return 0
        self._turns[attempt], row["kept_bytes"] = turn_rows(trajectory, seen)
        return int(row["kept_bytes"])

    def add_turns(self, trajectory: Trajectory, seen: Sequence[Seen]) -> int:
        """Add the turns of a trajectory that is written without them; return their size in bytes."""
        attempt = trajectory.attempt.id
        self._turns[attempt], size = turn_rows(trajectory, seen)
        self.num_turns += len(seen)
        self.then(update(TRAJECTORIES).where(TRAJECTORIES.c.attempt == attempt).values(kept_bytes=size))
        return size

    def add_blobs(self, rows: Iterable[tuple[str, int]]) -> None:
        """Add files by name and size."""
        self._blobs.extend({"blob": name, "num_bytes": size} for name, size in rows)

    def change(
        self,
        attempts: Iterable[int],
        state: TrajectoryState,
        *,
        reason: str | None = None,
        update: int | None = None,
    ) -> None:
        """Change the state of trajectories."""
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
        """Do statements afterwards, in the same transaction."""
        self._steps.extend((statement, None) for statement in statements)

    def then_rows(self, statement: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Do a statement for rows afterwards, in the same transaction."""
        self._steps.append((statement, rows))

    def without_turns(self, attempt: int) -> bool:
        """Leave the turns of a trajectory out, if they are not written and have no files; return whether that is so."""
        trajectory = self._later.pop(attempt, None)
        if trajectory is None:
            return False
        self.num_turns -= len(trajectory.turns)
        return True

    def take(self) -> tuple[list[Step], int]:
        """Return all of it as the steps of a transaction, and the bytes that were not counted yet; begin anew."""
        num_bytes = 0
        for attempt, trajectory in self._later.items():
            self._turns[attempt], size = turn_rows(trajectory, [UNSEEN] * len(trajectory.turns))
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
