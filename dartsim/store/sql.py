"""``SqlStore``: every trajectory and its state, in a database that outlives the run.

    record, eligible, drop ──► pending ──┐
    lease, release, trained ─────────────┴──► one transaction ──► database
    screenshots ──► files, before the transaction that names them

``durability`` decides when a call's transaction is written: ``each`` before the call returns; ``batched`` at the latest
with the next lease, release or trained mark, or when much is pending. A crash costs a batched store the newest
trajectories and drops, as if those attempts had still been running; never anything that an update used.

A caller that ends each group of changes with ``settle`` has it written as a whole, with its own state: ``settled``.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.engine import Engine
from typing_extensions import override

from dartsim.core.errors import InvariantViolated, TornFile
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
from dartsim.store.blobs import BlobStore, StoredFile
from dartsim.store.checkpoints import Checkpoint, checkpoint_folder
from dartsim.store.database import prepare
from dartsim.store.disk_usage import AT_ONCE, LOW_WATER, DiskUsage
from dartsim.store.load import Torn, load_successes, load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.recovery import plan_recovery, returned_members
from dartsim.store.rows import TurnFiles
from dartsim.store.tables import (
    BATCH_MEMBERS,
    BATCHES,
    CHECKPOINTS,
    DOCUMENTS,
    META,
    METADATA,
    SUCCESSES,
    TASKS,
    TRAJECTORIES,
    UPDATES,
    VERSIONS,
)
from dartsim.store.transactions import Pending, Writer, reading

DATABASE_FILE, SCREENS_FOLDER, CHECKPOINTS_FOLDER = "run.db", "screens", "checkpoints"
"""Names in a run directory."""
logger = logging.getLogger(__name__)
Durability = Literal["each", "batched"]
Keep = Literal["all", "live", "none"]
COLLECTED = "collected"
"""State of a stored success from before the run, which never changes."""
_FORGET_DOCUMENT = delete(DOCUMENTS).where(DOCUMENTS.c.name == bindparam("of_name"))
TURNS_A_CHANGE = 10
"""Turns per pending change at which a batched store writes."""


class SqlStore(Store):
    """Trajectories with the transitions of ``MemoryStore`` and no others, as rows and files.

    One process at a time: opening a store stops the writes of any process that had it open.

    Args:
        engine: The database, empty or with our tables.
        durability: When a call is written; see above.
        keep: Whose turns are kept: those of ``all``, of ``live`` trajectories (neither trained nor dropped), or none.
        blobs: Where screenshots are kept; None: nowhere.
        max_disk_gib: Most that turns and screenshots may take; then what ended first makes room.
        checkpoints: Folder of the learner's checkpoints. With it, an update counts after a crash only if a checkpoint
            contains it; None: the learner has nothing to lose, every finished update counts.
        keep_checkpoints: How many of the newest stay.
        max_pending: Changes that a batched store collects at most.
        settled: Whether a transaction is written by ``settle`` only (and by ``save``, ``flush``, ``close``), rather
            than by the call that makes it due.

    Raises:
        LayoutUnknown: If the database has other tables.
    """

    resumable = True

    def __init__(
        self,
        engine: Engine,
        *,
        durability: Durability = "batched",
        keep: Keep = "live",
        blobs: BlobStore | None = None,
        max_disk_gib: float | None = None,
        checkpoints: Path | None = None,
        keep_checkpoints: int = 2,
        max_pending: int = 2_000,
        settled: bool = False,
    ) -> None:
        prepare(engine)
        self.engine = engine
        self._each = durability == "each"
        self._keep = keep
        self._checkpoints = checkpoints
        self._keep_checkpoints = keep_checkpoints
        self._max_pending = max_pending
        self._settled = settled
        self._due = False
        """Whether the next ``settle`` has to write."""
        self._suspended = False
        self._writer = Writer(engine)
        max_bytes = None if max_disk_gib is None else int(max_disk_gib * 2**30)
        self.disk_usage = DiskUsage(engine, blobs, max_bytes)
        self._ending: list[int] = []
        """Trajectories that ended, whose turns are needed only if the success pool holds them."""
        self._ended: list[int] = []
        """Those of them whose turns are written."""
        self._old_checkpoints: list[Path] = []
        """Folders to remove once the transaction that names newer ones is written."""
        self._uncontained: list[int] = []
        """Trained trajectories that no checkpoint contains yet."""
        self._named: set[str] = set()
        """Files of turns that are not written yet, which must stay."""
        self._read_states()

    def _read_states(self) -> None:
        columns = TRAJECTORIES.c
        with reading(self.engine) as connection:
            live = select(columns.attempt, columns.state, columns.ready).where(columns.state.in_(LIVE))
            rows = connection.execute(live).all()
            leased = connection.execute(select(BATCHES.c.update, BATCHES.c.batch).where(BATCHES.c.state == "leased"))
            self._leases = {row.update: row.batch for row in leased}
            self._batches = connection.scalar(select(func.max(BATCHES.c.batch))) or 0
            last = connection.scalar(select(func.max(UPDATES.c.update))) or 0
            self._uses = {row.attempt: row.uses for row in connection.execute(select(SUCCESSES))}
            self._safe: int = connection.scalar(select(func.max(CHECKPOINTS.c.update))) or 0
            self._pending = Pending(connection.scalars(select(TASKS.c.task)))
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
    def num_bytes(self) -> int:
        return self.disk_usage.used_bytes

    @property
    @override
    def max_bytes(self) -> int | None:
        return self.disk_usage.max_bytes

    @property
    @override
    def prepare_files(self) -> Callable[[Any, str | None], None] | None:
        return None if self.disk_usage.blobs is None else self.disk_usage.blobs.prepare

    @override
    def record(self, trajectory: Trajectory) -> None:
        if self._suspended:
            return
        self.states.record(trajectory)
        self._add(trajectory, TrajectoryState.RECORDED.value)
        self._settle()

    @override
    def eligible(self, group: Group) -> None:
        if self._suspended:
            return
        self.states.eligible(group)
        attempts = [trajectory.attempt.id for trajectory in group.own]
        self._pending.change(attempts, TrajectoryState.ELIGIBLE)
        self._pending.ready(attempts, group.ready)
        self._settle()

    @override
    def lease(self, batch: Batch) -> None:
        if self._suspended:
            return
        self.states.lease(batch)
        attempts = _attempts(batch)
        self._batches += 1
        self._leases[batch.update] = self._batches
        self._pending.change(attempts, TrajectoryState.LEASED, update=batch.update)
        row = {
            "batch": self._batches,
            "update": batch.update,
            "version": batch.version,
            "num_trajectories": len(attempts),
            "num_turns": batch.num_turns,
            "state": "leased",
        }
        self._pending.then(insert(BATCHES).values(row))
        members = [{"batch": self._batches, "attempt": attempt} for attempt in attempts]
        self._pending.then_rows(insert(BATCH_MEMBERS), members)
        self._write_soon()

    @override
    def release(self, batch: Batch) -> None:
        if self._suspended:
            return
        self.states.release(batch)
        for attempt in _attempts(batch):
            self._pending.change((attempt,), self.states.live[attempt])
        self._end_lease(batch, "released")
        self._write_soon()

    @override
    def trained(self, batch: Batch, version: Version, *, checkpoint: Checkpoint | None = None) -> None:
        if self._suspended:
            return
        if checkpoint is not None and checkpoint.update != batch.update:
            raise InvariantViolated(f"update {batch.update} comes with the checkpoint of update {checkpoint.update}")
        self.states.trained(batch, version)
        attempts = _attempts(batch)
        self._pending.change(attempts, TrajectoryState.TRAINED, update=batch.update)
        self._end_lease(batch, "trained")
        counts = {"num_trajectories": len(attempts), "num_turns": batch.num_turns}
        self._pending.then(
            insert(UPDATES).values(update=batch.update, version=version, **counts),
            insert(VERSIONS).values(version=version, update=batch.update, parent=batch.version),
        )
        old = self._keep_checkpoint(checkpoint)
        self._uncontained.extend(attempts)
        if checkpoint is not None or self._checkpoints is None:
            self._end(self._uncontained)
            self._uncontained = []
        self._old_checkpoints.extend(old)
        self._write_soon()

    @override
    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        self.give_up([trajectory.attempt.id for trajectory in trajectories], reason)

    @override
    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        if self._suspended:
            return
        self.states.give_up(attempts, reason)
        self._pending.change(attempts, TrajectoryState.DROPPED, reason=reason.value)
        self._end(attempts)
        self._settle()

    @override
    def save(self, documents: Mapping[str, Any]) -> None:
        self._keep_documents(documents)
        self.flush()

    @override
    def documents(self) -> dict[str, Any]:
        self.flush()
        with reading(self.engine) as connection:
            rows = connection.execute(select(DOCUMENTS.c.name, DOCUMENTS.c.text))
            return {name: json.loads(text) for name, text in rows}

    def keep_successes(self, entries: Iterable[StoredSuccess]) -> None:
        """Make the stored successes exactly these; ``dartsim.store.load`` reads them."""
        self._add_successes(entries)
        self.flush()

    def _add_successes(self, entries: Iterable[StoredSuccess]) -> None:
        wanted = {entry.trajectory.attempt.id: entry for entry in entries}
        for attempt in [attempt for attempt in self._uses if attempt not in wanted]:
            del self._uses[attempt]
            self._pending.then(delete(SUCCESSES).where(SUCCESSES.c.attempt == attempt))
            if attempt < 0:
                self._ended.append(attempt)
            elif attempt not in self.states.live and attempt not in self._uncontained:
                self._end((attempt,))
        for attempt, entry in wanted.items():
            if attempt not in self._uses:
                self._add_success(entry)
            elif self._uses[attempt] != entry.uses:
                changed = update(SUCCESSES).where(SUCCESSES.c.attempt == attempt).values(uses=entry.uses)
                self._pending.then(changed)
            self._uses[attempt] = entry.uses

    @override
    def settle(self, source: Resumable, *, now: bool = False) -> None:
        if self._suspended or not (now or self._due or self._each or self._much):
            return
        self._keep_documents(source.documents())
        self._add_successes(source.successes())
        self.flush()

    @override
    def suspend(self) -> None:
        if not self._settled:
            self.flush()
        self._suspended = True

    @override
    def clear(self) -> None:
        self._writer.write([(delete(table), None) for table in METADATA.sorted_tables if table is not META])
        self._read_states()

    @override
    def recover(self) -> Recovered:
        self.flush()
        recovered, steps = plan_recovery(self.engine, self._checkpoints)
        self._writer.write(steps)
        self._read_states()
        for folder in recovered.removed:
            shutil.rmtree(folder, ignore_errors=True)
        while self._keep == "live" and self._forget_oldest():
            pass
        return replace(recovered, orphans=self.disk_usage.sweep())

    @override
    def restore(self, recovered: Recovered, known: Collection[int]) -> Restored:
        torn: list[Torn] = []
        engine, blobs = self.engine, self.disk_usage.blobs
        pool = load_successes(engine, blobs=blobs, on_torn=torn.append)
        trajectories = {entry.trajectory.attempt.id: entry.trajectory for entry in pool}
        live = load_trajectories(engine, blobs=blobs, states=LIVE, on_torn=torn.append)
        trajectories.update((trajectory.attempt.id, trajectory) for trajectory in live)
        for record in torn[:3]:
            logger.warning("attempt %d cannot be read back: %s", record.attempt, record.why)
        again = self.live.keys() - set(known)
        untrained = {a: update for a, update in returned_members(engine, recovered.undone) if a in again}
        return Restored(
            version=recovered.version,
            trajectories=trajectories,
            live=frozenset(self.live),
            untrained=untrained,
            successes=pool,
        )

    @override
    def close(self) -> None:
        if not self._settled:  # otherwise only settled changes are written
            self.flush()
        self.engine.dispose()

    def flush(self) -> None:
        self._due = False
        ending, self._ending = self._ending, []
        for attempt in ending:
            if attempt not in self._uses and not self._pending.without_turns(attempt):
                self._ended.append(attempt)
        steps, num_bytes = self._pending.take()
        self.disk_usage.add((), num_bytes)
        if steps or self._writer.waiting:
            self._writer.write(steps)
        self._named.clear()
        while self._ended:
            ended, self._ended = self._ended[:AT_ONCE], self._ended[AT_ONCE:]
            self._forget(ended)
        for folder in self._old_checkpoints:
            shutil.rmtree(folder, ignore_errors=True)
        self._old_checkpoints.clear()
        if self.disk_usage.over:
            self._make_room(0)

    @property
    def _much(self) -> bool:
        pending, most = self._pending, self._max_pending
        return len(pending) >= most or pending.num_turns >= TURNS_A_CHANGE * most

    def _settle(self) -> None:
        """End a call that a batched store may write later."""
        if not self._settled and (self._each or self._much):
            self.flush()

    def _write_soon(self) -> None:
        """End a call that has to be written: now, or with the next ``settle``."""
        self._due = True
        if not self._settled:
            self.flush()

    def _add(self, trajectory: Trajectory, state: str) -> None:
        if self._keep == "none":
            self._pending.add(trajectory, None, state=state)
            return
        files, new = self._put(trajectory)
        if new and not self.disk_usage.fits(new):
            if not self._settled:
                self.flush()
            self._make_room(sum(kept.num_bytes for kept in new))
            files, new = self._put(trajectory)  # again: it may show what was just forgotten
            if not self.disk_usage.fits(new):
                files, new = self.disk_usage.without(files, new), []
        self._pending.add_blobs(new)
        self.disk_usage.add(new, self._pending.add(trajectory, files, state=state))

    def _put(self, trajectory: Trajectory) -> tuple[list[TurnFiles], list[StoredFile]]:
        """Write a trajectory's files, and protect them until its rows name them."""
        files, new = self.disk_usage.put(trajectory)
        self._named.update(name for files in files for name in files if name)
        return files, new

    def _end(self, attempts: Sequence[int]) -> None:
        """Forget the turns of ended trajectories, if only live ones are kept."""
        if self._keep == "live":
            self._ending.extend(attempts)

    def _end_lease(self, batch: Batch, state: str) -> None:
        number = self._leases.pop(batch.update, None)
        if number is not None:
            self._pending.then(update(BATCHES).where(BATCHES.c.batch == number).values(state=state))

    def _keep_documents(self, documents: Mapping[str, Any]) -> None:
        if not documents:
            return
        rows = [{"name": name, "text": json.dumps(document, sort_keys=True)} for name, document in documents.items()]
        self._pending.then_rows(_FORGET_DOCUMENT, [{"of_name": name} for name in documents])
        self._pending.then_rows(insert(DOCUMENTS), rows)

    def _keep_checkpoint(self, checkpoint: Checkpoint | None) -> list[Path]:
        """Add a checkpoint's row; return the folders of outdated ones."""
        if checkpoint is None:
            return []
        values = {"update": checkpoint.update, "folder": checkpoint.folder.name}
        values |= {"digest": checkpoint.digest, "num_bytes": checkpoint.num_bytes}
        with reading(self.engine) as connection:
            newest = select(CHECKPOINTS.c.update, CHECKPOINTS.c.folder).order_by(CHECKPOINTS.c.update.desc())
            old = connection.execute(newest.offset(self._keep_checkpoints - 1)).all()
        self._pending.then(
            *(delete(CHECKPOINTS).where(CHECKPOINTS.c.update == number) for number, _ in old),
            insert(CHECKPOINTS).values(values),
        )
        self._safe = checkpoint.update
        outdated = []
        for _, folder in old:
            with suppress(TornFile):  # whatever else the row names is not ours to remove
                outdated.append(checkpoint_folder(checkpoint.folder.parent, folder))
        return outdated

    def _add_success(self, entry: StoredSuccess) -> None:
        trajectory = entry.trajectory
        attempt = trajectory.attempt.id
        if attempt not in self._pending:
            self._keep_success(trajectory)
        values = {"attempt": attempt, "origin": entry.origin.value, "stored": entry.stored, "uses": entry.uses}
        self._pending.then(insert(SUCCESSES).values(values))

    def _keep_success(self, trajectory: Trajectory) -> None:
        """Keep the turns of a stored success that is not pending."""
        columns = TRAJECTORIES.c
        with reading(self.engine) as connection:
            query = select(columns.kept_bytes).where(columns.attempt == trajectory.attempt.id)
            row = connection.execute(query).first()
        if row is None:
            self._add(trajectory, COLLECTED)
        elif row.kept_bytes is None and self._keep != "none":
            files, new = self._put(trajectory)
            self._pending.add_blobs(new)
            self.disk_usage.add(new, self._pending.add_turns(trajectory, files))

    def _make_room(self, num_bytes: int) -> None:
        """Forget the turns of the oldest ended trajectories until there is room."""
        usage = self.disk_usage
        if usage.max_bytes is None:
            return
        while usage.used_bytes + num_bytes > LOW_WATER * usage.max_bytes:
            if not self._forget_oldest():
                return

    def _forget_oldest(self) -> bool:
        """Forget the turns of the oldest ended trajectories; return False if there are none."""
        contained = None if self._checkpoints is None else TRAJECTORIES.c.update <= self._safe
        with reading(self.engine) as connection:
            oldest = self.disk_usage.oldest(connection, contained=contained)
        if oldest:
            self._forget(oldest)
        return bool(oldest)

    def _forget(self, attempts: Sequence[int]) -> None:
        with reading(self.engine) as connection:
            steps, names, freed = self.disk_usage.forget(connection, attempts, named=self._named)
        self._writer.write(steps)
        self.disk_usage.forgotten(attempts, names, freed)


def _attempts(batch: Batch) -> list[int]:
    return [trajectory.attempt.id for trajectory in batch.trajectories]
