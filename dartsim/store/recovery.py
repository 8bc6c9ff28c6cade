"""What a run that ended anyhow left behind, and how it goes on from there.

    leased to an update that has no transaction          -> given back
    trained by an update that no checkpoint contains     -> given back; the update is undone
    a checkpoint without its transaction, or half of one -> removed
    a screenshot without a row                           -> removed

So each trajectory is in the weights once, or may be trained. The number of finished updates is the newest
checkpoint's, and goes back only if the disk lost that one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql.elements import ColumnElement

from dartsim.core.errors import TornFile
from dartsim.core.types import Version
from dartsim.store.checkpoints import checkpoint_folders, read_checkpoint
from dartsim.store.memory import TrajectoryState
from dartsim.store.tables import BATCHES, CHECKPOINTS, TRAJECTORIES, UPDATES, VERSIONS
from dartsim.store.transactions import Step, reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """From where a run goes on.

    Attributes:
        update: Finished updates.
        version: What the last of them made; 0 if there is none.
        checkpoint: Folder of the checkpoint that contains exactly them; None: the learner begins anew, or has none.
        returned: Attempts that were given back.
        undone: Updates that no checkpoint contains.
        torn: Why checkpoints that had a transaction could not be used, newest first; each is lost work.
        removed: Folders of checkpoints that are removed.
        orphans: Screenshots without a row, which are removed.
        next_attempt: First number that no stored attempt has.
        next_group: First number that no stored group has.
    """

    update: int
    version: Version
    checkpoint: Path | None
    returned: tuple[int, ...]
    undone: tuple[int, ...]
    torn: tuple[str, ...]
    removed: tuple[Path, ...]
    orphans: int = 0
    next_attempt: int
    next_group: int

    def with_orphans(self, number: int) -> Recovered:
        """Return the same, with the number of screenshots that were removed."""
        return replace(self, orphans=number)


def plan_recovery(engine: Engine, checkpoints: Path | None) -> tuple[Recovered, list[Step]]:
    """Return from where a run goes on, and the transaction that brings its database there.

    Args:
        engine: Its database.
        checkpoints: Folder of the learner's checkpoints; None: every finished update counts.
    """
    with reading(engine) as connection:
        finished = list(connection.scalars(select(UPDATES.c.update).order_by(UPDATES.c.update)))
        kept, torn = _usable(connection, checkpoints)
        newest = max(kept, default=None)
        last = max(finished, default=0)
        if checkpoints is not None:
            last = 0 if newest is None else newest
        columns = TRAJECTORIES.c
        unfinished = columns.state == TrajectoryState.LEASED.value
        undone = (columns.state == TrajectoryState.TRAINED.value) & (columns.update > last)
        returned = tuple(
            connection.scalars(select(columns.attempt).where(unfinished | undone).order_by(columns.attempt))
        )
        recovered = Recovered(
            update=last,
            version=connection.scalar(select(VERSIONS.c.version).where(VERSIONS.c.update == last)) or 0,
            checkpoint=None if newest is None or checkpoints is None else kept[newest],
            returned=returned,
            undone=tuple(number for number in finished if number > last),
            torn=tuple(torn),
            removed=_superfluous(checkpoints, kept),
            next_attempt=_next(connection, columns.attempt),
            next_group=_next(connection, columns.group),
        )
    where_from = case(
        (columns.ready.is_not(None), TrajectoryState.ELIGIBLE.value), else_=TrajectoryState.RECORDED.value
    )
    return recovered, [
        (update(TRAJECTORIES).where(unfinished | undone).values({"state": where_from, "update": None}), None),
        (update(BATCHES).where((BATCHES.c.state == "leased") | _undone(last)).values(state="returned"), None),
        (delete(UPDATES).where(UPDATES.c.update > last), None),
        (delete(VERSIONS).where(VERSIONS.c.update > last), None),
        (delete(CHECKPOINTS).where(CHECKPOINTS.c.update.not_in(list(kept))), None),
    ]


def _undone(last: int) -> ColumnElement[bool]:
    return (BATCHES.c.state == "trained") & (BATCHES.c.update > last)


def _next(connection: Connection, column: ColumnElement[int]) -> int:
    found: int | None = connection.scalar(select(func.max(column)))
    return 0 if found is None else max(0, found + 1)  # those of collected successes are below 0


def _usable(connection: Connection, root: Path | None) -> tuple[dict[int, Path], list[str]]:
    """Return the folders of the newest whole checkpoint and of those before it, and why newer ones are not usable."""
    kept: dict[int, Path] = {}
    torn: list[str] = []
    rows = connection.execute(select(CHECKPOINTS).order_by(CHECKPOINTS.c.update.desc())).all()
    for row in rows:
        folder = (root or Path()) / row.folder
        if kept or root is None:
            kept[row.update] = folder
            continue
        try:
            found = read_checkpoint(folder)
            if (found.update, found.digest) != (row.update, row.digest):
                raise TornFile(f"{folder} is another checkpoint than that of update {row.update}")
        except TornFile as fault:
            torn.append(str(fault))
        else:
            kept[row.update] = folder
    return kept, torn


def _superfluous(root: Path | None, kept: dict[int, Path]) -> tuple[Path, ...]:
    if root is None:
        return ()
    return tuple(folder for folder in checkpoint_folders(root) if folder not in kept.values())
