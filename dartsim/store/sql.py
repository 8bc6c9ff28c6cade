"""``SqlStore``: every trajectory and its state, in a database that survives the process.

    screenshots ──► files
    record, eligible, lease, … ──► open transaction ──settle──► database

A transaction contains whole steps of the scheduler and its state after them. It ends with the first ``settle`` after a
lease, a release or a finished update, or after ``max_changes``. A crash loses what came later, as if those attempts had
still been running, but never anything that an update used.

Turns and screenshots are kept while their trajectory may be trained on or is in the success pool, and those of the
newest other ones for viewers; rows stay.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from dartsim.core.errors import InvariantViolated, StoreFault, TornFile
from dartsim.core.ports import Resumable, Store
from dartsim.core.types import (
    LIVE,
    Batch,
    Drop,
    Group,
    Recovered,
    Restored,
    StoredSuccess,
    Trajectory,
    TrajectoryState,
    Version,
)
from dartsim.store.blobs import BlobStore
from dartsim.store.checkpoints import KEEP_CHECKPOINTS, Checkpoint, checkpoint_folder
from dartsim.store.database import (
    CHECKPOINTS_FOLDER,
    DATABASE_FILE,
    SCREENS_FOLDER,
    database_errors,
    make_tables,
    open_database,
    read_documents,
)
from dartsim.store.load import Torn, load_successes, load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.recovery import plan_recovery, untrained_attempts
from dartsim.store.rows import screens_of, task_row, trajectory_row

MAX_CHANGES = 2_000
COLLECTED = "collected"
"""State of a success collected before the run; it never changes."""
logger = logging.getLogger(__name__)


class SqlStore(Store):
    """Trajectories as rows and files, with exactly the transitions of ``MemoryStore``.

    Args:
        database: Empty, or with our tables; only the store may begin and end its transactions.
        blobs: Where screenshots are kept; None: they are not.
        checkpoints: Folder of the learner's checkpoints. With it, an update counts after a crash only if a checkpoint
            contains it; None: the learner has no weights to lose, so every finished update counts.
        max_changes: Changes after which a transaction ends.
        keep_turns: Number of trajectories, the newest, whose turns are kept although nothing needs them any more.

    Raises:
        LayoutUnknown: If the database has other tables.
        StoreFault: If it is damaged.
    """

    resumable = True

    def __init__(
        self,
        database: sqlite3.Connection,
        *,
        blobs: BlobStore | None = None,
        checkpoints: Path | None = None,
        max_changes: int = MAX_CHANGES,
        keep_turns: int = 0,
    ) -> None:
        make_tables(database)
        self.database = database
        self.blobs = blobs
        self._checkpoints = checkpoints
        self._max_changes = max_changes
        self._keep_turns = keep_turns
        self._suspended = False
        self._read_states()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        durable: bool = False,
        screenshots: bool = True,
        checkpoints: bool = False,
        keep_turns: int = 0,
    ) -> Self:
        """Open the store of a run directory.

        Args:
            folder: The run directory.
            durable: Write each step at once and flush it to disk, so that it survives a loss of power. Worthwhile
                where an attempt takes minutes.
            screenshots: Whether screenshots are kept.
            checkpoints: Whether the learner writes checkpoints.
            keep_turns: See the class.
        """
        return cls(
            open_database(folder / DATABASE_FILE, durable=durable),
            blobs=BlobStore(folder / SCREENS_FOLDER, durable=durable, moves=True) if screenshots else None,
            checkpoints=folder / CHECKPOINTS_FOLDER if checkpoints else None,
            max_changes=1 if durable else MAX_CHANGES,
            keep_turns=keep_turns,
        )

    def _read_states(self) -> None:
        self._due = False
        """Whether the next ``settle`` ends the transaction."""
        self._changes = 0
        self._uncontained: list[int] = []
        """Trained trajectories that no checkpoint contains yet."""
        self._ended: list[int] = []
        """Trajectories whose turns are needed only if they are in the success pool."""
        self._unneeded: deque[int] = deque()
        """Trajectories whose turns are kept for viewers, oldest first."""
        self._old_checkpoints: list[Path] = []
        """Folders to remove once the transaction with newer ones is committed."""
        self._files: dict[int, list[str]] = {}
        """File names of each trajectory whose turns are kept."""
        self._references: Counter[str] = Counter()
        """How many times trajectories refer to each file."""
        self._unnamed: list[str] = []
        """Files to remove at the end of the transaction, if nothing refers to them by then."""
        with database_errors():
            execute = self.database.execute
            self._tasks = {task for (task,) in execute("SELECT task FROM tasks")}
            self._uses = dict(execute("SELECT attempt, uses FROM successes"))
            live = ", ".join(f"'{state.value}'" for state in LIVE)
            rows = list(execute(f"SELECT attempt, state, ready FROM trajectories WHERE state IN ({live})"))
            (last,) = execute('SELECT ifnull(max("update"), 0) FROM updates').fetchone()
            for attempt, turns in execute("SELECT attempt, turns FROM trajectories WHERE turns IS NOT NULL"):
                with suppress(StoreFault):  # torn; reported when it is loaded
                    self._name(attempt, screens_of(turns))
        self.states = MemoryStore(
            {attempt: TrajectoryState(state) for attempt, state, _ in rows},
            judged=frozenset(attempt for attempt, _, ready in rows if ready is not None),
            update=last,
        )

    @property
    @override
    def live(self) -> Mapping[int, TrajectoryState]:
        return self.states.live

    @property
    @override
    def counts(self) -> Mapping[TrajectoryState, int]:
        return self.states.counts

    @property
    @override
    def prepare_files(self) -> Callable[[Any], Awaitable[None]] | None:
        return None if self.blobs is None else self.blobs.prepare

    @override
    def record(self, trajectory: Trajectory) -> None:
        self.states.record(trajectory)
        self._add(trajectory, TrajectoryState.RECORDED.value)

    @override
    def eligible(self, group: Group) -> None:
        self.states.eligible(group)
        attempts = [trajectory.attempt.id for trajectory in group.own]
        self._set(attempts, TrajectoryState.ELIGIBLE)
        self._write("UPDATE trajectories SET ready = ? WHERE attempt = ?", *((group.ready, n) for n in attempts))

    @override
    def lease(self, batch: Batch) -> None:
        self.states.lease(batch)
        self._set(_attempts(batch), TrajectoryState.LEASED, update=batch.update)
        self._due = True

    @override
    def release(self, batch: Batch) -> None:
        self.states.release(batch)
        for attempt in _attempts(batch):
            self._set((attempt,), self.states.live[attempt])
        self._due = True

    @override
    def trained(self, batch: Batch, version: Version, *, checkpoint: Checkpoint | None = None) -> None:
        if checkpoint is not None and checkpoint.update != batch.update:
            raise InvariantViolated(f"update {batch.update} comes with the checkpoint of update {checkpoint.update}")
        self.states.trained(batch, version)
        attempts = _attempts(batch)
        self._set(attempts, TrajectoryState.TRAINED, update=batch.update)
        self._write("INSERT INTO updates VALUES (?, ?, ?, ?)", (batch.update, version, len(attempts), batch.num_turns))
        self._uncontained += attempts
        if checkpoint is not None:
            self._keep_checkpoint(checkpoint)
        if checkpoint is not None or self._checkpoints is None:
            self._ended += self._uncontained
            self._uncontained = []
        self._due = True

    @override
    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        self.give_up([trajectory.attempt.id for trajectory in trajectories], reason)

    @override
    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        self.states.give_up(attempts, reason)
        self._set(attempts, TrajectoryState.DROPPED, reason=reason.value)
        self._ended += attempts

    @override
    def save(self, documents: Mapping[str, Any]) -> None:
        self._save_documents(documents)
        self._commit()

    @override
    def documents(self) -> dict[str, Any]:
        with database_errors():
            return read_documents(self.database)

    @override
    def settle(self, source: Resumable, *, now: bool = False) -> None:
        if self._suspended or not (now or self._due or self._changes >= self._max_changes):
            return
        self._save_documents(source.documents())
        self._save_successes(source.successes())
        self._commit()

    @override
    def suspend(self) -> None:
        self._suspended = True
        self.database.rollback()

    @override
    def close(self) -> None:
        self.database.close()

    @override
    def clear(self) -> None:
        for table in ("tasks", "trajectories", "updates", "checkpoints", "successes", "documents"):
            self._write(f"DELETE FROM {table}", ())
        self._commit()
        self._read_states()

    @override
    def recover(self) -> Recovered:
        with database_errors():
            recovered, steps = plan_recovery(self.database, self._checkpoints)
        for statement, *rows in steps:
            self._write(statement, *rows)
        self._commit()
        self._read_states()
        # Only now: until then, a trained trajectory may be returned.
        with database_errors():
            kept = self.database.execute("SELECT attempt FROM trajectories WHERE turns IS NOT NULL ORDER BY attempt")
            self._unneeded += (n for (n,) in kept if n not in self.live and n not in self._uses)
        for folder in recovered.removed:
            shutil.rmtree(folder, ignore_errors=True)
        if self.blobs is not None:
            self.blobs.sweep(self._references)
        return recovered

    @override
    def restore(self, recovered: Recovered, known: Collection[int]) -> Restored:
        torn: list[Torn] = []
        pool = load_successes(self.database, blobs=self.blobs, on_torn=torn.append)
        trajectories = {entry.trajectory.attempt.id: entry.trajectory for entry in pool}
        live = load_trajectories(self.database, blobs=self.blobs, states=LIVE, on_torn=torn.append)
        trajectories.update((trajectory.attempt.id, trajectory) for trajectory in live)
        for record in torn[:3]:
            logger.warning("attempt %d cannot be read back: %s", record.attempt, record.why)
        again = self.live.keys() - set(known)
        untrained = untrained_attempts(self.database, recovered.undone)
        return Restored(
            version=recovered.version,
            trajectories=trajectories,
            live=frozenset(self.live),
            untrained={attempt: update for attempt, update in untrained.items() if attempt in again},
            successes=pool,
        )

    def _add(self, trajectory: Trajectory, state: str) -> None:
        screens: list[str | None] = [None] * len(trajectory.turns)
        if self.blobs is not None and not self._suspended:
            seen = [turn.observation.screenshot for turn in trajectory.turns]
            screens = [None if screenshot is None else self.blobs.put(screenshot) for screenshot in seen]
        attempt, task = trajectory.attempt.id, trajectory.attempt.task
        self._name(attempt, filter(None, screens))
        if task.id not in self._tasks:
            self._tasks.add(task.id)
            self._write("INSERT INTO tasks VALUES (?, ?, ?, ?)", task_row(task))
        row = trajectory_row(trajectory, screens, state)
        self._write(f"INSERT INTO trajectories VALUES ({', '.join('?' * len(row))})", row)

    def _name(self, attempt: int, names: Iterable[str]) -> None:
        """Record the file names of a trajectory."""
        if files := list(names):
            self._files[attempt] = files
            self._references.update(files)

    def _set(
        self, attempts: Iterable[int], state: TrajectoryState, *, reason: str | None = None, update: int | None = None
    ) -> None:
        self._write(
            'UPDATE trajectories SET state = ?, reason = ?, "update" = ? WHERE attempt = ?',
            *((state.value, reason, update, attempt) for attempt in attempts),
        )

    def _keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint's row, and remove outdated ones."""
        with database_errors():
            newest = 'SELECT "update", folder FROM checkpoints ORDER BY "update" DESC LIMIT -1 OFFSET ?'
            old = self.database.execute(newest, (KEEP_CHECKPOINTS - 1,)).fetchall()
        self._write('DELETE FROM checkpoints WHERE "update" = ?', *((update,) for update, _ in old))
        row = (checkpoint.update, checkpoint.folder.name, checkpoint.digest)
        self._write("INSERT INTO checkpoints VALUES (?, ?, ?)", row)
        for _, folder in old:
            with suppress(TornFile):  # never remove a path that is not a checkpoint's
                self._old_checkpoints.append(checkpoint_folder(checkpoint.folder.parent, folder))

    def _save_documents(self, documents: Mapping[str, Any]) -> None:
        rows = ((name, json.dumps(document, sort_keys=True)) for name, document in documents.items())
        self._write("INSERT OR REPLACE INTO documents VALUES (?, ?)", *rows)

    def _save_successes(self, entries: Iterable[StoredSuccess]) -> None:
        """Store exactly these successes; ``load_successes`` reads them."""
        wanted = {entry.trajectory.attempt.id: entry for entry in entries}
        for attempt in self._uses.keys() - wanted:
            del self._uses[attempt]
            self._write("DELETE FROM successes WHERE attempt = ?", (attempt,))
            if attempt not in self.states.live and attempt not in self._uncontained:
                self._ended.append(attempt)
        for attempt, entry in wanted.items():
            if attempt < 0 and attempt not in self._uses:
                self._add(entry.trajectory, COLLECTED)
            if self._uses.get(attempt) != entry.uses:
                row = (attempt, entry.origin.value, entry.stored, entry.uses)
                self._write("INSERT OR REPLACE INTO successes VALUES (?, ?, ?, ?)", row)
            self._uses[attempt] = entry.uses

    def _forget_ended(self) -> None:
        """Delete turns that are not needed, but for the newest; their files are removed after the commit."""
        self._unneeded += (attempt for attempt in self._ended if attempt not in self._uses)
        self._ended = []
        too_many = max(0, len(self._unneeded) - self._keep_turns)
        oldest = [self._unneeded.popleft() for _ in range(too_many)]
        ended = [attempt for attempt in oldest if attempt not in self._uses]
        self._write("UPDATE trajectories SET turns = NULL WHERE attempt = ?", *((attempt,) for attempt in ended))
        for name in (name for attempt in ended for name in self._files.pop(attempt, ())):
            self._references[name] -= 1
            if not self._references[name]:
                del self._references[name]
                self._unnamed.append(name)

    def _write(self, statement: str, *rows: tuple[Any, ...]) -> None:
        """Execute a statement for rows in the open transaction; nothing once the store is suspended."""
        if self._suspended:
            return
        self._changes += len(rows)
        with self._suspended_by_faults():
            if not self.database.in_transaction:
                self.database.execute("BEGIN")
            self.database.executemany(statement, rows)

    def _commit(self) -> None:
        if self._suspended:
            return
        self._forget_ended()
        with self._suspended_by_faults():
            self.database.commit()
        self._due, self._changes = False, 0
        for folder in self._old_checkpoints:
            shutil.rmtree(folder, ignore_errors=True)
        self._old_checkpoints = []
        if self.blobs is not None:
            self.blobs.remove([name for name in self._unnamed if name not in self._references])
        self._unnamed = []

    @contextmanager
    def _suspended_by_faults(self) -> Iterator[None]:
        """Suspend once the database has failed: the run ends, and can resume from its last transaction."""
        try:
            with database_errors():
                yield
        except StoreFault:
            self.suspend()
            raise


def _attempts(batch: Batch) -> list[int]:
    return [trajectory.attempt.id for trajectory in batch.trajectories]
