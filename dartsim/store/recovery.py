"""Recovery of an interrupted run's database and files.

    leased to an update without a transaction            -> returned
    trained by an update that no checkpoint contains     -> returned; the update is undone
    a partial checkpoint, or one without a transaction   -> removed
    a screenshot without a row                           -> removed

So each trajectory is in the weights once, or may still be trained on. The number of finished updates is that of the
newest checkpoint, and decreases only if that checkpoint is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dartsim.core.errors import TornFile
from dartsim.core.types import Recovered
from dartsim.store.checkpoints import checkpoint_folder, checkpoint_folders, read_checkpoint

Step = tuple[Any, ...]
"""A statement and its rows of parameters."""
_GIVE_BACK = "UPDATE trajectories SET state = CASE WHEN ready IS NULL THEN 'recorded' ELSE 'eligible' END"


def plan_recovery(database: sqlite3.Connection, checkpoints: Path | None) -> tuple[Recovered, list[Step]]:
    """Return the state from which a run resumes, and the transaction that restores its database to it."""
    versions = dict(database.execute('SELECT "update", version FROM updates ORDER BY "update"'))
    usable, damaged = ({}, []) if checkpoints is None else _usable(database, checkpoints)
    last = max(versions, default=0) if checkpoints is None else max(usable, default=0)
    returned = database.execute(
        """SELECT attempt FROM trajectories WHERE state = 'leased' OR (state = 'trained' AND "update" > ?)
        ORDER BY attempt""",
        (last,),
    )
    recovered = Recovered(
        update=last,
        version=versions.get(last, 0),
        checkpoint=usable.get(last),
        returned=tuple(attempt for (attempt,) in returned),
        undone=tuple(number for number in versions if number > last),
        torn=tuple(damaged),
        removed=() if checkpoints is None else _superfluous(checkpoints, usable),
    )
    unusable = {number for (number,) in database.execute('SELECT "update" FROM checkpoints')} - usable.keys()
    return recovered, [
        (f"""{_GIVE_BACK}, "update" = NULL WHERE state = 'leased'""", ()),
        # The update stays in the row, for ``untrained_attempts``.
        (f"""{_GIVE_BACK} WHERE state = 'trained' AND "update" > ?""", (last,)),
        ('DELETE FROM updates WHERE "update" > ?', (last,)),
        ('DELETE FROM checkpoints WHERE "update" = ?', *((number,) for number in sorted(unusable))),
    ]


def untrained_attempts(database: sqlite3.Connection, undone: Collection[int]) -> dict[int, int]:
    """Return the attempts returned from undone updates, each with its update, oldest first."""
    found = database.execute(
        """SELECT attempt, "update" FROM trajectories WHERE state IN ('recorded', 'eligible')
        ORDER BY "update", attempt"""
    )
    return {attempt: update for attempt, update in found if update in undone}


def _usable(database: sqlite3.Connection, root: Path) -> tuple[dict[int, Path], list[str]]:
    """Return the folders of the newest whole checkpoint and earlier ones, and why newer ones are unusable."""
    usable: dict[int, Path] = {}
    damaged: list[str] = []
    for update, name, digest in database.execute('SELECT * FROM checkpoints ORDER BY "update" DESC'):
        try:
            folder = checkpoint_folder(root, name)
            if not usable:
                checkpoint = read_checkpoint(folder)
                if (checkpoint.update, checkpoint.digest) != (update, digest):
                    raise TornFile(f"{folder} is another checkpoint than that of update {update}")
        except TornFile as fault:
            damaged.append(str(fault))
        else:
            usable[update] = folder
    return usable, damaged


def _superfluous(root: Path, usable: dict[int, Path]) -> tuple[Path, ...]:
    return tuple(folder for folder in checkpoint_folders(root) if folder not in usable.values())
