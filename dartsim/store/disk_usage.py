"""``DiskUsage``: the disk space of the run's turns and screenshots, and how to free some.

A limit is enforced by forgetting the turns of the oldest trajectories that were trained or dropped; their rows, with
their final states, stay. If that is not enough, new screenshots are not kept.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql.elements import ColumnElement

from dartsim.core.errors import StoreFault
from dartsim.core.types import Trajectory, TrajectoryState
from dartsim.store.blobs import BlobStore, StoredFile
from dartsim.store.rows import NO_FILES, NO_ROOM, TurnFiles
from dartsim.store.tables import BLOBS, SUCCESSES, TRAJECTORIES, TURNS
from dartsim.store.transactions import Step, reading

logger = logging.getLogger(__name__)

LOW_WATER = 0.9
"""Share of the limit to free down to, so that space is not freed for every trajectory."""
AT_ONCE = 50
"""Trajectories that are forgotten in one transaction."""


class DiskUsage:
    """Counts what is kept.

    Attributes:
        used_bytes: Size of turns and files.
        counts: ``disk_full``, ``store_fault`` and ``over_quota``: screenshots and trees that were not kept, by cause;
            ``forgotten``: trajectories whose turns made room.
    """

    def __init__(self, engine: Engine, blobs: BlobStore | None, max_bytes: int | None) -> None:
        self.blobs = blobs
        self.max_bytes = max_bytes
        self.counts: Counter[str] = Counter()
        with reading(engine) as connection:
            known = connection.execute(select(BLOBS.c.blob, BLOBS.c.num_bytes)).all()
            turns = connection.scalar(select(func.sum(TRAJECTORIES.c.kept_bytes)))
        self._known = {name for name, _ in known}
        self.used_bytes: int = sum(size for _, size in known) + int(turns or 0)

    @property
    def over(self) -> bool:
        return self.max_bytes is not None and self.used_bytes > self.max_bytes

    def fits(self, new: Sequence[StoredFile]) -> bool:
        return self.max_bytes is None or self.used_bytes + sum(kept.num_bytes for kept in new) <= self.max_bytes

    def put(self, trajectory: Trajectory) -> tuple[list[TurnFiles], list[StoredFile]]:
        """Write the files of a trajectory; return those of each turn, and those that the database does not know."""
        blobs, new = self.blobs, dict[str, StoredFile]()
        if blobs is None:
            return [NO_FILES] * len(trajectory.turns), []
        seen = (turn.observation for turn in trajectory.turns)
        files = [
            TurnFiles(self._put(blobs.put, o.screenshot, new), self._put(blobs.put_text, o.accessibility_tree, new))
            for o in seen
        ]
        return files, list(new.values())

    def add(self, new: Sequence[StoredFile], num_bytes: int) -> None:
        """Count new files and the size of rows."""
        self._known.update(kept.name for kept in new)
        self.used_bytes += num_bytes + sum(kept.num_bytes for kept in new)

    def without(self, files_of_turns: Sequence[TurnFiles], new: Sequence[StoredFile]) -> list[TurnFiles]:
        """Remove new files that do not fit, and return the remaining names."""
        names = {kept.name for kept in new}
        if self.blobs is not None:
            self.blobs.remove(names)
        self.counts["over_quota"] += len(names)
        return [TurnFiles(*(NO_ROOM if name in names else name for name in files)) for files in files_of_turns]

    def oldest(self, connection: Connection, *, contained: ColumnElement[bool] | None) -> list[int]:
        """Return the oldest trajectories whose turns may be forgotten."""
        columns = TRAJECTORIES.c
        trained = columns.state == TrajectoryState.TRAINED.value
        over = (columns.state == TrajectoryState.DROPPED.value) | (
            trained if contained is None else trained & contained
        )
        in_pool = select(SUCCESSES.c.attempt)
        query = select(columns.attempt).where(over, columns.kept_bytes.is_not(None), columns.attempt.not_in(in_pool))
        return list(connection.scalars(query.order_by(columns.finished, columns.attempt).limit(AT_ONCE)))

    def forget(
        self, connection: Connection, attempts: Sequence[int], *, named: Set[str]
    ) -> tuple[list[Step], list[str], int]:
        """Return the statements that forget turns, the files to remove afterwards, and the bytes freed."""
        of_these = TURNS.c.attempt.in_(attempts)
        names = _files(connection, of_these) - named
        names -= _files(connection, TURNS.c.screenshot.in_(names), TURNS.c.attempt.not_in(attempts))
        names -= _files(connection, TURNS.c.tree.in_(names), TURNS.c.attempt.not_in(attempts))
        mine = TRAJECTORIES.c.attempt.in_(attempts)
        freed = int(connection.scalar(select(func.sum(TRAJECTORIES.c.kept_bytes)).where(mine)) or 0)
        freed += int(connection.scalar(select(func.sum(BLOBS.c.num_bytes)).where(BLOBS.c.blob.in_(names))) or 0)
        steps: list[Step] = [
            (delete(TURNS).where(of_these), None),
            (delete(BLOBS).where(BLOBS.c.blob.in_(names)), None),
            (update(TRAJECTORIES).where(mine).values(kept_bytes=None), None),
        ]
        return steps, sorted(names), freed

    def forgotten(self, attempts: Sequence[int], names: Sequence[str], freed: int) -> None:
        """Remove the files of forgotten turns, and count."""
        self._known.difference_update(names)
        self.used_bytes -= freed
        self.counts["forgotten"] += len(attempts)
        if self.blobs is not None:
            self.blobs.remove(names)

    def sweep(self) -> int:
        """Remove files that no row names; return how many."""
        return 0 if self.blobs is None else self.blobs.sweep(self._known)

    def _put(self, put: Any, value: Any, new: dict[str, StoredFile]) -> str | None:
        if value is None:
            return None
        try:
            kept: StoredFile = put(value)
        except StoreFault as fault:
            if not self.counts[fault.cause]:
                logger.warning("a screenshot is not kept; further ones are only counted: %s", fault)
            self.counts[fault.cause] += 1
            return NO_ROOM
        if kept.name not in self._known:
            new[kept.name] = kept
        return kept.name


def _files(connection: Connection, *where: ColumnElement[bool]) -> set[str]:
    rows = connection.execute(select(TURNS.c.screenshot, TURNS.c.tree).where(*where).distinct()).all()
    return {name for row in rows for name in row if name}
