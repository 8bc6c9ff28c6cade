"""Checkpoints of a model in a run: everything that its learner needs to go on, whole or not at all.

    checkpoints/update-00000012/
        checkpoint/       weights, optimizer, progress (``dartsim.real.learners``)
        incumbent/        the same of the promoted weights, if weights are promoted
        promotion.json    what was judged, and where its random stream is
        manifest.json     every file with its size and SHA-256 (``dartsim.store.checkpoints``)

The store's transaction that marks the update's trajectories as trained names the folder; without it the folder belongs
to an update that did not happen.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult, Version
from dartsim.store.checkpoints import write_checkpoint
from dartsim.trainer.loop import IdempotentUpdate
from dartsim.trainer.promoted import PromotedLearner
from dartsim.trainer.promotion import Decision, HeldOutRewards, PairedComparison, Verdict

STATE, INCUMBENT, PROMOTION = "checkpoint", "incumbent", "promotion.json"


class LearnerCheckpoints:
    """Writes and restores the checkpoints of a run's learner."""

    def __init__(self, trainer: Any, promoted: PromotedLearner | None) -> None:
        self._trainer = trainer
        self._promoted = promoted
        self._incumbent: tuple[Version, Path] | None = None
        """Version of the promoted weights, and their folder in the newest checkpoint."""

    def write(self, root: Path, update: int) -> Any:
        """Write a checkpoint of the present state under ``root`` and return it."""
        checkpoint = write_checkpoint(root, update, self._fill)
        if self._promoted is not None:
            self._incumbent = (self._promoted.incumbent.version, checkpoint.folder / INCUMBENT)
        return checkpoint

    def read(self, folder: Path) -> None:
        """Restore a checkpoint.

        Raises:
            ValueError: If it is another model's, or another seed's.
        """
        promoted = self._promoted
        if promoted is not None and (folder / PROMOTION).is_file():
            # Without the promoted weights, those of the checkpoint become the incumbent.
            known = (folder / INCUMBENT).is_dir()
            self._trainer.load(folder / (INCUMBENT if known else STATE))
            self._trainer.keep()
            promoted.incumbent = self._trainer.weights()
            saved = json.loads((folder / PROMOTION).read_text(encoding="utf-8"))
            _restore_promotions(promoted, saved)
            self._incumbent = (promoted.incumbent.version, folder / INCUMBENT)
        self._trainer.load(folder / STATE)

    def _fill(self, folder: Path) -> None:
        self._trainer.save(folder / STATE)
        promoted = self._promoted
        if promoted is None:
            return
        known = self._incumbent
        if known is not None and known[0] == promoted.incumbent.version and known[1].is_dir():
            shutil.copytree(known[1], folder / INCUMBENT, copy_function=_linked)
        elif hasattr(self._trainer, "save_kept"):
            self._trainer.save_kept(folder / INCUMBENT)
        elif self._trainer.weights().version == promoted.incumbent.version:
            self._trainer.save(folder / INCUMBENT)
        text = json.dumps(_promotions(promoted), indent=1)
        (folder / PROMOTION).write_text(text + "\n", encoding="utf-8")


class CheckpointedLearner:
    """A learner that writes a checkpoint every ``every_updates`` updates, before they count; implements ``Learner``.

    ``write`` is called in a thread; it writes the checkpoint of an update and returns it.
    """

    def __init__(self, inner: Learner, write: Callable[[int], Any], *, every_updates: int) -> None:
        self._idempotent = IdempotentUpdate(inner)
        self._write = write
        self._every = every_updates

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, and write a checkpoint if it is time; one that failed is repeated without training again."""
        result = await self._idempotent.update(batch)
        with self._idempotent.then(batch, "its checkpoint"):
            if batch.update % self._every:
                return result
            return replace(result, checkpoint=await asyncio.to_thread(self._write, batch.update))


def _linked(source: str, target: str) -> str:
    """Link a file that never changes; copy it where links are not supported."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _promotions(promoted: PromotedLearner) -> dict[str, Any]:
    promotions = promoted.promotions
    best = promotions.promoted
    return {
        "version": None if best is None else best.version,
        "rewards": {} if best is None else {task: list(rewards) for task, rewards in best.rewards.items()},
        "decisions": [asdict(decision) for decision in promotions.decisions],
        "rng": promotions.rng.bit_generator.state,
    }


def _restore_promotions(promoted: PromotedLearner, saved: dict[str, Any]) -> None:
    promotions = promoted.promotions
    promotions.promoted = None
    if saved["version"] is not None:
        promotions.promoted = HeldOutRewards(version=promoted.incumbent.version, rewards=saved["rewards"])
    promotions.decisions[:] = [_decision(decision) for decision in saved["decisions"]]
    promotions.counts.clear()
    promotions.counts.update(decision.verdict for decision in promotions.decisions)
    promotions.rng.bit_generator.state = saved["rng"]


def _decision(saved: dict[str, Any]) -> Decision:
    compared = saved["comparison"]
    verdict = Verdict(saved["verdict"])
    return Decision(
        **{**saved, "verdict": verdict, "comparison": None if compared is None else PairedComparison(**compared)}
    )
