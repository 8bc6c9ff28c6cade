"""The store that a configuration names, in a run's folder."""

from __future__ import annotations

from pathlib import Path

from dartsim.store.blobs import BlobStore
from dartsim.store.memory import MemoryStore
from dartsim.store.sql.engine import open_sqlite, open_url, schema_name
from dartsim.store.sql.store import Durability, Keep, SqlStore

DATABASE = "run.db"
SCREENS = "screens"
CHECKPOINTS = "checkpoints"


def open_store(
    where: str,
    folder: Path,
    *,
    durability: Durability = "batched",
    keep: Keep = "live",
    screenshots: bool = True,
    checkpoints: bool = False,
    max_disk_gib: float | None = None,
    keep_checkpoints: int = 2,
    settled: bool = False,
) -> SqlStore | MemoryStore:
    """Open the store of a run, and make it if it is not there.

    Args:
        where: ``memory``, ``sqlite`` (a file in the run's folder), or a PostgreSQL URL, where the run has a schema
            that is named as its folder.
        folder: The run's; it exists.
        durability: When what is told is written; ``each`` also makes it survive a loss of power.
        keep: Whose turns are kept.
        screenshots: Whether screenshots and accessibility trees are kept, under ``screens``.
        checkpoints: Whether the learner writes checkpoints, under ``checkpoints``, without which its updates do not
            count after a crash.
        max_disk_gib: Most that turns and screenshots may take.
        keep_checkpoints: How many of the newest stay.
        settled: As for ``SqlStore``.

    Raises:
        ConfigError: If there is no such store.
        LayoutUnknown: If a newer dartsim made it.
        StoreFault: If the database does not answer.
    """
    if where == "memory":
        return MemoryStore()
    durable = durability == "each"
    if where == "sqlite":
        engine = open_sqlite(folder / DATABASE, durable=durable)
    else:
        engine = open_url(where, schema=schema_name(folder.resolve().name))
    return SqlStore(
        engine,
        durability=durability,
        keep=keep,
        blobs=BlobStore(folder / SCREENS, durable=durable) if screenshots and keep != "none" else None,
        checkpoints=folder / CHECKPOINTS if checkpoints else None,
        max_disk_gib=max_disk_gib,
        keep_checkpoints=keep_checkpoints,
        settled=settled,
    )
