"""``TorchLearner``: batches of trajectories into weights, with the objective of ``dartsim.trainer``.

    Batch --examples--> rows --micro-batches--> log-probabilities --objective--> gradient --AdamW--> Weights

Every turn is one example. Its prompt is built from the worker's observations by the worker's own code. Common parts of
turns and attempts are computed once (``dartsim.real.vlm.packing``), with exactly the gradient of computing each turn
alone. ``dartsim.real.learners.fsdp`` takes the same steps in several processes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch

from dartsim.config.sections.trainer import TrainerConfig
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.real.learners import checkpoint
from dartsim.real.learners.gradient_steps import GradientSteps
from dartsim.real.learners.mismatch import report
from dartsim.real.learners.ranks import Ranks
from dartsim.real.learners.turn_data import Selector, TurnData, lacks_entropies, read_turns, with_selection
from dartsim.real.vlm.lora import adapter_of, add_lora
from dartsim.real.vlm.model import Vlm


class TorchLearner:
    """Trains a ``Vlm`` behind the port ``Learner``.

    An update that fails leaves weights and optimizer as they were.

    Attributes:
        vlm: The model in training; no policy may serve it (give a policy its ``twin``).
    """

    def __init__(self, vlm: Vlm, config: TrainerConfig, *, seed: int = 0, select: Selector | None = None) -> None:
        self.vlm = vlm
        self.config = config
        self.seed = seed
        self._select = select
        self._reference = vlm.twin() if self.config.objective.kl_coefficient else None
        if config.lora.rank is not None:
            add_lora(vlm.model, self.config.lora, seed=seed)
        vlm.trunk.checkpointing = config.fsdp.checkpointing
        self._steps = GradientSteps(vlm, self.config, seed=seed, reference=self._reference)

    @property
    def updates(self) -> int:
        return self._steps.updates

    @property
    def optimizer(self) -> torch.optim.AdamW:
        return self._steps.optimizer

    async def update(self, batch: Batch) -> UpdateResult:
        return await asyncio.to_thread(self.train, batch)

    def train(self, batch: Batch) -> UpdateResult:
        metrics = self._steps.fit(self._read(batch), batch.update)
        report(metrics, self.config.mismatch_bound, update=batch.update)
        return UpdateResult(self.weights(), metrics)

    def weights(self) -> Weights:
        """Return the present weights, with LoRA only the adapter: a copy that nothing changes."""
        return Weights(self.updates, adapter_of(self.vlm.model) or self.vlm.snapshot())

    def _read(self, batch: Batch) -> TurnData:
        data = read_turns(batch, self.vlm, self.config.objective.advantage)
        if self._select is None:
            return data
        entropies = self._steps.score(data)[1] if lacks_entropies(batch) else None
        return with_selection(data, batch, self._select, entropies)

    def save_model(self, folder: Path) -> None:
        self.vlm.save(folder)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and progress, from which ``load`` continues exactly; atomic."""
        checkpoint.save(self._steps, folder, Ranks(), seed=self.seed)

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, including one written by several ranks.

        A checkpoint from before the first update also provides the reference of the KL divergence.

        Raises:
            ValueError: If it belongs to another model or seed.
        """
        checkpoint.refuse_other_seed(folder, self.seed)
        checkpoint.load(self._steps, folder)
        if self._reference is not None and self.updates == 0:
            self._reference.use(self.vlm.snapshot())
