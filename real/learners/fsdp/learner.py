"""``FsdpLearner``: the driver of a learner of several processes; implements ``dartsim.core.ports.Learner``.

    Batch --read here--> turns.safetensors --ranks: GradientSteps--> checkpoint and folder of weights --> Weights

Its folder on disk (on a disk that all workers see, if they load from it):

    model/                     the model with its first weights
    checkpoints/update-000012  where the ranks resume when one of them died
    weights/version-000012     the newest versions, each a folder as transformers and vLLM read it: a model's, or with
                               LoRA an adapter's
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dartsim.config.sections.trainer import TrainerConfig
from dartsim.core.errors import BatchUntrainable, LearnerFault
from dartsim.core.types import Batch, Group, Trajectory, UpdateResult, Version, Weights
from dartsim.real.learners.checkpoint import read_about, refuse_other_seed
from dartsim.real.learners.fsdp.files import Setup, read_tensor, write_turns
from dartsim.real.learners.fsdp.group import RankGroup
from dartsim.real.learners.mismatch import report
from dartsim.real.learners.turn_data import Selector, TurnData, lacks_entropies, read_turns, with_scores, with_selection
from dartsim.real.ray_cluster.ranks import RayRanks
from dartsim.real.scratch import replaced_folder
from dartsim.real.vlm.export import export_weights, read_weights, with_adapter
from dartsim.real.vlm.lora import ADAPTER_FILE
from dartsim.real.vlm.model import Vlm

logger = logging.getLogger(__name__)


class FsdpLearner:
    """Trains a model by several processes, with the gradient that ``TorchLearner`` would take.

    The ranks start when they are first needed. When one dies, all restart from the last checkpoint, and the update is a
    ``LearnerFault``; likewise when an update is canceled, which ends them at once.

    Args:
        vlm: The model, which writes the prompts; its weights are not used.
        model: Folder of the model's first weights, as ``dartsim.real.vlm.export`` or transformers writes it.
        folder: Holds batches, checkpoints and weights; created if missing.
        config: Settings of updates, and of the processes (``fsdp``).
        seed: As in ``TorchLearner``.
        select: As in ``TorchLearner``.
        export_dtype: Type of the weights in published folders, by torch's name: that of the engines, so that loaded
            weights can be compared; None: the model's. Checkpoints keep the model's type.
        group: Class that starts the processes: ``RankGroup`` here, ``RayRanks`` on a cluster.
    """

    def __init__(
        self,
        vlm: Vlm,
        model: Path,
        folder: Path,
        config: TrainerConfig,
        *,
        seed: int = 0,
        select: Selector | None = None,
        export_dtype: str | None = None,
        group: Callable[..., RankGroup | RayRanks] = RankGroup,
    ) -> None:
        self.config = config
        self.seed = seed
        self.updates = 0
        self._vlm = vlm
        self._model = model.resolve()
        self._folder = folder.resolve()
        self._select = select
        self._export_dtype = export_dtype
        self._lock = threading.Lock()
        self._checkpoint: Path | None = None
        self._exported: dict[Version, Path] = {0: self._model}
        self._closed = False
        self._folder.mkdir(parents=True, exist_ok=True)
        self.group = group(self._folder, settings=config.fsdp, prepare=self._write_setup)

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch in a thread. If canceled, the ranks end, and restart when they are needed."""
        work = asyncio.ensure_future(asyncio.to_thread(self.train, batch))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                self.group.kill()  # again, in case the thread has only just started them
                await asyncio.wait([work], timeout=1.0)
            if not work.cancelled():
                work.exception()  # retrieved, so that asyncio does not complain
            raise

    def train(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights.

        Raises:
            BatchUntrainable: As in ``GradientSteps.fit``, or if no turn can be written.
            LearnerFault: If a rank died.
        """
        with self._lock:
            self._refuse_closed(batch)
            data = read_turns(batch, self._vlm, self.config.objective.advantage)
            self._start_ranks()
            files = self._folder / "batch"
            try:
                self._refuse_closed(batch)
                answer = self._fit(data, batch, files)
            finally:
                shutil.rmtree(files, ignore_errors=True)
            if "fault" in answer:
                raise (BatchUntrainable if answer["untrainable"] else LearnerFault)(answer["fault"])
            self.updates = batch.update
            self._exported[self.updates] = self._weights(self.updates)
            self._prune()
        metrics = {**answer["metrics"], "learner/ranks": float(self.config.fsdp.ranks)}
        report(metrics, self.config.mismatch_bound, update=batch.update)
        return UpdateResult(self.weights(), metrics)

    def score(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        groups = tuple(Group(number, t.attempt.task, (t,), 0.0) for number, t in enumerate(trajectories))
        batch = Batch(self.updates, self.updates, groups)
        files = self._folder / "scored"
        with self._lock:
            data = read_turns(batch, self._vlm, self.config.objective.advantage)
            self._start_ranks()
            try:
                logprob_BT, entropy_BT = self._scores(data, files)
            finally:
                shutil.rmtree(files, ignore_errors=True)
        return list(with_scores(data, batch, entropy_BT, logprob_BT).trajectories)

    def weights(self) -> Weights:
        return Weights(self.updates, self._exported[self.updates])

    def save_model(self, folder: Path) -> None:
        """Write the model with its present weights, ready to be loaded by transformers; an adapter is merged in."""
        newest = Path(self.weights().source)
        if not (newest / ADAPTER_FILE).is_file():
            _copy(newest, folder)
            return
        weights = with_adapter(self._model, read_weights(newest, ()))
        export_weights(weights, folder, like=self._model, dtype=self._export_dtype)
        _copy(newest, folder / "adapter")

    def save(self, folder: Path) -> None:
        with self._lock:
            self._saved(folder)

    def load(self, folder: Path) -> None:
        """Resume from a checkpoint of any number of ranks, or of ``TorchLearner``.

        Raises:
            ValueError: If it is of another seed.
            LearnerFault: If it is of another model.
        """
        refuse_other_seed(folder, self.seed)
        with self._lock:
            self._load(folder.resolve())

    def close(self) -> None:
        """End the ranks. The state on disk stays and can be saved; there are no more updates."""
        self._closed = True
        self.group.kill()

    def _refuse_closed(self, batch: Batch) -> None:
        if self._closed:
            self.group.kill()
            raise LearnerFault(f"update {batch.update} came after the learner was closed")

    def _fit(self, data: TurnData, batch: Batch, files: Path) -> dict[str, Any]:
        if self._select is not None:
            data = with_selection(
                data, batch, self._select, self._scores(data, files)[1] if lacks_entropies(batch) else None
            )
        turns = files / "turns"
        write_turns(data, turns)
        update, checkpoint = batch.update, None
        if update % self.config.checkpoint_every_updates == 0 or self._checkpoint is None:
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

    def _scores(self, data: TurnData, files: Path) -> Tensor:
        """Return [2, B, T]: log-probabilities and entropies under the present weights."""
        turns, out = files / "unselected", files / "scores.safetensors"
        write_turns(data, turns)
        self._ask({"do": "score", "turns": str(turns), "out": str(out)})
        return read_tensor(out)

    def _start_ranks(self) -> None:
        """Start the ranks if they are not up, from the last checkpoint if there is one."""
        if self.group.running:
            return
        self.group.start()
        if self._checkpoint is not None:
            answer = self._ask({"do": "load", "folder": str(self._checkpoint), "version": None})
            logger.warning("the learner's ranks were started again at update %d of %d", answer["updates"], self.updates)

    def _load(self, folder: Path) -> None:
        if not self.group.running:
            self.group.start()
        number = read_about(folder)["updates"]
        weights = self._weights(number)
        self._ask({"do": "load", "folder": str(folder), "version": number, "weights": str(weights)})
        self.updates, self._checkpoint = number, None
        # Later versions are not part of this history.
        self._exported = {n: path for n, path in self._exported.items() if n < number} | {number: weights}
        self._checkpoint = self._saved(self._folder / "checkpoints" / f"update-{self.updates:06d}")
        self._prune()

    def _saved(self, folder: Path) -> Path:
        """Write the present state to a folder and return the folder."""
        newest = self._checkpoint
        if newest is not None and newest.is_dir() and read_about(newest)["updates"] == self.updates:
            _copy(newest, folder)
            return folder
        self._start_ranks()
        self._ask({"do": "save", "folder": str(folder.resolve())})
        if self._closed:
            self.group.kill()
        return folder

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        return self.group.ask(dict(order), self.config.fsdp.update_seconds)

    def _write_setup(self) -> None:
        config = replace(self._vlm.config, folder=str(self._model))
        setup = Setup(model=config, trainer=self.config, seed=self.seed, export_dtype=self._export_dtype)
        setup.write(self._folder)

    def _weights(self, version: Version) -> Path:
        return self._folder / "weights" / f"version-{version:06d}"

    def _prune(self) -> None:
        for version in sorted(self._exported)[: -self.config.fsdp.keep_weights]:
            if self._exported[version] != self._model:
                shutil.rmtree(self._exported.pop(version), ignore_errors=True)
        for old in (self._folder / "checkpoints").glob("update-*"):
            if old != self._checkpoint:
                shutil.rmtree(old, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    with replaced_folder(target) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
