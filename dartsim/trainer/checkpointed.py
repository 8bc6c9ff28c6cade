"""Checkpoints of a model in a run: everything that its learner needs to resume, written whole or not at all.

    checkpoints/update-00000012/
        checkpoint/       weights, optimizer, progress (``dartsim.real.learners``)
        manifest.json     every file with its size and SHA-256 (``dartsim.store.checkpoints``)

The store's transaction that marks the update's trajectories as trained refers to the folder; without that transaction,
the folder belongs to an update that did not happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult
from dartsim.store.checkpoints import Checkpoint
from dartsim.trainer.loop import IdempotentUpdate


class CheckpointedLearner:
    """A learner that writes a checkpoint every ``every_updates`` updates, before they count; implements ``Learner``.

    ``write`` runs in a thread; it writes the checkpoint of an update and returns it.
    """

    def __init__(self, inner: Learner, write: Callable[[int], Checkpoint], *, every_updates: int) -> None:
        self._idempotent = IdempotentUpdate(inner)
        self._write = write
        self._every = every_updates

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, and write a checkpoint if one is due; a failed write is retried without training again."""
        result = await self._idempotent.update(batch)
        with self._idempotent.then(batch, "its checkpoint"):
            if batch.update % self._every:
                return result
            return replace(result, checkpoint=await asyncio.to_thread(self._write, batch.update))
