"""``FsdpLearner``: the driver of a learner of several processes; implements ``dartsim.core.ports.Learner``.

    Batch --read here--> turns.safetensors --ranks: GradientSteps--> checkpoint and folder of weights --> Weights

What it keeps on disk, in one folder (on a disk that all workers see, if they load from it):

    model/                     the model with its first weights
    checkpoints/update-000012  what the ranks start from when one of them died
    weights/version-000012     the newest versions, each a model's folder as transformers and vLLM read it
    kept/                      a checkpoint to go back to
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dartsim.config.sections.trainer import TrainerConfig
from dartsim.core.errors import LearnerFault
from dartsim.core.types import Batch, UpdateResult, Version, Weights
from dartsim.real.learners.fsdp.group import RankGroup
from dartsim.real.learners.fsdp.settings import Setup
from dartsim.real.learners.fsdp.wire import read_tensor, write_turns
from dartsim.real.learners.gradient_steps import TINY
from dartsim.real.learners.mismatch import report
from dartsim.real.learners.turn_data import Selector, Speaker, TurnData, chosen, lacks_entropies, read_turns

logger = logging.getLogger(__name__)


class FsdpLearner:
    """Trains a model by several processes, with the gradient that ``TorchLearner`` would take.

    The ranks are started when they are first needed. When one dies, all are started again from the last checkpoint,
    and the update is a ``LearnerFault``; also when an update is cancelled, which ends them at once.

    Attributes:
        updates: Finished updates, also the version of the newest weights.
        group: The processes.

    Args:
        speaker: Writes the prompts: a ``Vlm`` or a ``Language`` of the model.
        model: Folder of the model's first weights, as ``dartsim.real.vlm.export`` or transformers writes it.
        folder: Where to keep batches, checkpoints and weights; made if it is not there.
        config: How weights are updated, and by which processes (``fsdp``).
        seed: As in ``TorchLearner``.
        select: As in ``TorchLearner``.
    """

    def __init__(
        self,
        speaker: Speaker,
        model: Path,
        folder: Path,
        config: TrainerConfig = TINY,
        *,
        seed: int = 0,
        select: Selector | None = None,
    ) -> None:
        self.config = config
        self.seed = seed
        self.updates = 0
        self._speaker = speaker
        self._model = model.resolve()
        self._folder = folder.resolve()
        self._select = select
        self._one = threading.Lock()
        self._checkpoint: Path | None = None
        self._kept: Path | None = None
        self._exported: dict[Version, Path] = {0: self._model}
        self._pinned: Version | None = None
        self._closed = False
        self._folder.mkdir(parents=True, exist_ok=True)
        self.group = RankGroup(
            self._folder,
            settings=config.fsdp,
            prepare=self._set_up,
        )

    # ---- the port

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch in a thread. If cancelled, the ranks are ended, and start again when they are needed.

        Raises:
            LearnerFault: If loss or gradient was not finite, no turn could be trained, or a rank died.
        """
        work = asyncio.ensure_future(asyncio.to_thread(self.train, batch))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                self.group.kill()  # again, should the thread only just have started them
                await asyncio.wait([work], timeout=1.0)
            if not work.cancelled():
                work.exception()  # looked at, so that nobody complains
            raise

    def train(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights.

        Raises:
            LearnerFault: As ``update``.
        """
        with self._one:
            self._refuse_closed(batch)
            data = read_turns(batch, self._speaker, self.config.objective.advantage)
            self._up()
            files = self._folder / "batch"
            try:
                self._refuse_closed(batch)
                answer = self._fit(data, batch, files)
            finally:
                shutil.rmtree(files, ignore_errors=True)
            if "fault" in answer:
                raise LearnerFault(answer["fault"])
            self.updates = batch.update
            self._exported[self.updates] = self._weights(self.updates)
            self._prune()
        metrics = {**answer["metrics"], "learner/ranks": float(self.config.fsdp.ranks)}
        report(metrics, self.config.mismatch_bound, update=batch.update)
        return UpdateResult(self.weights(), metrics)

    def weights(self) -> Weights:
        """Return the present weights: a folder, which is kept while it is among the newest or remembered."""
        return Weights(self.updates, self._exported[self.updates])

    # ---- there and back

    def keep(self) -> None:
        """Remember weights and optimizer as they are, for ``go_back``; the weights' folder stays."""
        with self._one:
            self._kept = self._saved(self._folder / "kept")
            self._pinned = self.updates

    def go_back(self, version: Version) -> Weights:
        """Return to what was remembered, and return it as a new version.

        Raises:
            ValueError: If nothing was remembered.
        """
        if self._kept is None:
            raise ValueError("there is nothing to go back to; wanted a call of keep() before")
        with self._one:
            self._load(self._kept, version)
        return self.weights()

    def save_model(self, folder: Path) -> None:
        """Write the model with its present weights, ready to be loaded by transformers."""
        _copied(Path(self.weights().source), folder)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and progress, so that ``load`` goes on, with any number of ranks."""
        with self._one:
            self._saved(folder)

    def save_kept(self, folder: Path) -> None:
        """Write what was remembered as ``save`` writes what is.

        Raises:
            ValueError: If nothing was remembered.
        """
        if self._kept is None:
            raise ValueError("there is nothing to write; wanted a call of keep() before")
        _copied(self._kept, folder)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint of any number of ranks, or of ``TorchLearner``.

        Raises:
            ValueError: If it is another seed's.
            LearnerFault: If it is another model's.
        """
        seed = _about(folder)["seed"]
        if seed != self.seed:
            raise ValueError(f"checkpoint {folder} has seed {seed}, this learner {self.seed}")
        with self._one:
            self._load(folder.resolve(), None)

    def close(self) -> None:
        """End the ranks. What is on disk stays and can be saved; there are no more updates."""
        self._closed = True
        if self.config.fsdp.nodes > 1 and not self._one.locked():
            self.group.stop()  # those on other machines end by themselves, and are not started there again
        self.group.kill()

    # ---- the ranks

    def _refuse_closed(self, batch: Batch) -> None:
        if self._closed:
            self.group.kill()
            raise LearnerFault(f"update {batch.update} came after the learner was closed")

    def _fit(self, data: TurnData, batch: Batch, files: Path) -> dict[str, Any]:
        if self._select is not None:
            data = chosen(data, batch, self._select, self._entropies(data, files) if lacks_entropies(batch) else None)
        turns = files / "turns"
        write_turns(data, turns)
        update, checkpoint = batch.update, None
        if update % self.config.fsdp.checkpoint_every_updates == 0 or self._checkpoint is None:
            checkpoint = self._folder / "checkpoints" / f"update-{update:06d}"
        answer = self._ask(
            {
                "do": "train",
                "turns": str(turns),
                "update": update,
                "weights": str(self._weights(update)),
                "checkpoint": None if checkpoint is None else str(checkpoint),
            }
        )
        if checkpoint is not None and "fault" not in answer:
            self._checkpoint = checkpoint
        return answer

    def _entropies(self, data: TurnData, files: Path) -> Tensor:
        asked, out = files / "asked", files / "entropies.safetensors"
        write_turns(data, asked)
        self._ask({"do": "entropies", "turns": str(asked), "out": str(out)})
        return read_tensor(out)

    def _up(self) -> None:
        """Start the ranks if they are not up, from the last checkpoint if there is one."""
        if self.group.running:
            return
        self.group.start()
        if self._checkpoint is not None:
            answer = self._ask({"do": "load", "folder": str(self._checkpoint), "version": None})
            logger.warning("the learner's ranks were started again at update %d of %d", answer["updates"], self.updates)

    def _load(self, folder: Path, version: Version | None) -> None:
        if not self.group.running:
            self.group.start()
        number = _about(folder)["updates"] if version is None else version
        where = self._weights(number)
        self._ask({"do": "load", "folder": str(folder), "version": number, "weights": str(where)})
        self.updates, self._checkpoint = number, None
        # Later ones are no part of this history.
        self._exported = {n: path for n, path in self._exported.items() if n < number} | {number: where}
        self._checkpoint = self._saved(self._folder / "checkpoints" / f"update-{self.updates:06d}")
        self._prune()

    def _saved(self, folder: Path) -> Path:
        """Write the present state to a folder."""
        newest = self._checkpoint
        if newest is not None and newest.is_dir() and _about(newest)["updates"] == self.updates:
            _copied(newest, folder)
            return folder
        self._up()
        self._ask({"do": "save", "folder": str(folder.resolve())})
        if self._closed:
            self.group.stop()
        return folder

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        return self.group.ask(dict(order), self.config.fsdp.update_seconds)

    def _set_up(self, address: str) -> None:
        config = replace(self._speaker.config, folder=str(self._model))
        setup = Setup(model=config, trainer=self.config, seed=self.seed, socket=address)
        setup.write(self._folder)

    # ---- the disk

    def _weights(self, version: Version) -> Path:
        return self._folder / "weights" / f"version-{version:06d}"

    def _prune(self) -> None:
        """Remove old versions and checkpoints."""
        for version in sorted(self._exported)[: -self.config.fsdp.keep_weights]:
            if version != self._pinned and self._exported[version] != self._model:
                shutil.rmtree(self._exported.pop(version), ignore_errors=True)
        for old in (self._folder / "checkpoints").glob("update-*"):
            if old != self._checkpoint:
                shutil.rmtree(old, ignore_errors=True)


def _about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "learner.json").read_text(encoding="utf-8"))
    return found


def _copied(source: Path, target: Path) -> None:
    """Copy a folder; the copy appears whole or not, in the place of what was there."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
