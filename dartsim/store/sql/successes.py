"""The success pool, back from a run's database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.engine import Engine

from dartsim.store.blobs import BlobStore
from dartsim.store.sql.load import Torn, load_trajectories
from dartsim.store.sql.tables import SUCCESSES
from dartsim.store.sql.writer import reading
from dartsim.store.stored import Origin, Stored


def load_successes(
    engine: Engine, *, blobs: BlobStore | None = None, on_torn: Callable[[Torn], None] | None = None
) -> list[Stored]:
    """Return the stored successes as ``SqlStore.keep_successes`` left them, in the order in which they were stored.

    Args:
        engine: The run's database.
        blobs: Its files.
        on_torn: As for ``load_trajectories``.

    Raises:
        TornRecord: As ``load_trajectories``.
        StoreFault: If the database does not answer.
    """
    with reading(engine) as connection:
        rows = {row.attempt: row for row in connection.execute(select(SUCCESSES))}
    found = [
        Stored(
            trajectory=trajectory,
            origin=Origin(rows[trajectory.attempt.id].origin),
            stored=rows[trajectory.attempt.id].stored,
            uses=rows[trajectory.attempt.id].uses,
        )
        for trajectory in load_trajectories(engine, blobs=blobs, attempts=rows, on_torn=on_torn)
    ]
    return sorted(found, key=lambda entry: (entry.stored, abs(entry.trajectory.attempt.id)))
