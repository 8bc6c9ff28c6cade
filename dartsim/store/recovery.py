"""Recovery of an interrupted run's database and files.

    leased to an update that has no transaction          -> given back
    trained by an update that no checkpoint contains     -> given back; the update is undone
    a checkpoint without its transaction, or half of one -> removed
    a screenshot without a row                           -> removed

So each trajectory is in the weights once, or may be trained. The number of finished updates is that of the newest
checkpoint, and decreases only if the disk lost that one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import case, delete, select, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql.elements import ColumnElement

from dartsim.core.errors import TornFile
from dartsim.core.types import Recovered, TrajectoryState
from dartsim.store.checkpoints import checkpoint_folder, checkpoint_folders, read_checkpoint
from dartsim.store.tables import BATCH_MEMBERS, BATCHES, CHECKPOINTS, TRAJECTORIES, UPDATES, VERSIONS
from dartsim.store.transactions import Step, reading


def plan_recovery(engine: Engine, checkpoints: Path | None) -> tuple[Recovered, list[Step]]:
    """Return where a run resumes, and the transaction that brings its database there."""
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


def returned_members(engine: Engine, updates: Collection[int]) -> list[tuple[int, int]]:
    """Return the attempts of batches that were taken back from undone updates, with the update, oldest batch first."""
    if not updates:
        return []
    query = (
        select(BATCH_MEMBERS.c.attempt, BATCHES.c.update)
        .join(BATCHES, BATCHES.c.batch == BATCH_MEMBERS.c.batch)
        .where(BATCHES.c.state == "returned", BATCHES.c.update.in_(updates))
        .order_by(BATCHES.c.batch)
    )
    with reading(engine) as connection:
        return [(attempt, update) for attempt, update in connection.execute(query)]


def _usable(connection: Connection, root: Path | None) -> tuple[dict[int, Path], list[str]]:
    """Return the folders of the newest whole checkpoint and of those before it, and why newer ones are not usable."""
    kept: dict[int, Path] = {}
    torn: list[str] = []
    rows = connection.execute(select(CHECKPOINTS).order_by(CHECKPOINTS.c.update.desc())).all()
    for row in rows:
        if root is None:
            kept[row.update] = Path(row.folder)
            continue
        try:
            folder = checkpoint_folder(root, row.folder)
            if kept:
                kept[row.update] = folder
                continue
            checkpoint = read_checkpoint(folder)
            if (checkpoint.update, checkpoint.digest) != (row.update, row.digest):
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
