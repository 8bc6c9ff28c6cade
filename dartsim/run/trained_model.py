"""``TrainedModel``: a model that acts in a run and is trained by it.

It needs torch and transformers, so it is imported only if a configuration has a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.core.install import torch_missing
from dartsim.core.ports import Learner
from dartsim.core.types import Trajectory, Weights
from dartsim.curation import SuccessPool
from dartsim.run.prepared_run import PreparedRun

try:
    from dartsim.real.learners.backend import RealLearner
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.pool_files import PoolFile, token_meaning, write_pool
    from dartsim.run.demonstrations import demonstrate, scored
    from dartsim.run.evaluation import HeldOut
    from dartsim.run.served_model import ServedModel
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None


MODEL, CHECKPOINT = "model", "checkpoint"
"""Folders of a state: the model as transformers reads it, and the learner's whole state."""
SCORED_AT_ONCE = 8
"""Stored successes whose log-probabilities are computed together."""


@dataclass(kw_only=True)
class TrainedModel(ServedModel):
    """A model with its learner, its evaluation and its stored successes."""

    learner: Learner
    held_out: HeldOut
    trainer: RealLearner
    collected: PoolFile | None
    prepared: PreparedRun
    successes: SuccessPool | None = None

    def close(self) -> None:
        """End the training processes, if any; weights and state can still be written."""
        if isinstance(self.trainer, FsdpLearner):
            self.trainer.close()

    def evaluate(self, weights: Weights) -> float | None:
        return self.held_out.evaluate(weights)

    def save(self, folder: Path) -> None:
        """Write the model as transformers reads it, and the learner's state, to continue from."""
        self.trainer.save_model(folder / MODEL)
        self.trainer.save(folder / CHECKPOINT)

    def save_successes(self, folder: Path) -> None:
        """Write the newest successes of the run's own attempts, if any are in a pool."""
        config = self.prepared.config
        learned = self.successes.learned() if self.successes is not None else []
        if learned:
            source = {"kind": "run", "seed": config.run.seed, "updates": self.trainer.updates}
            write_pool(folder, learned, writes=token_meaning(self.vlm, config.policy.screen), source=source)

    def figures(self) -> dict[str, Any]:
        """Return its figures for the run's summary, other than success rates."""
        if self.successes is None:
            return {}
        pool: dict[str, Any] = {"stored": len(self.successes), **dict(sorted(self.successes.counts.items()))}
        if self.collected is not None:
            found = self.collected
            pool["file"] = {"successes": len(found.successes), "unknown_tasks": list(found.unknown)}
        return {"pool": pool}

    @property
    def weights(self) -> Weights:
        return self.trainer.weights()

    def fill(self, successes: SuccessPool, *, begun: bool = False) -> None:
        """Store the configured successes: those of the file, and the oracle's, scored by the first weights.

        Successes of the oracle with actions that the model's grammar cannot write are left out: they cannot be trained.
        """
        self.successes = successes
        if begun:
            return
        collected = self.collected.successes if self.collected is not None else ()
        for start in range(0, len(collected), SCORED_AT_ONCE):
            for success in self._scored(collected[start : start + SCORED_AT_ONCE]):
                successes.add(success, now=0.0)
        wanted = self.prepared.config.curation.pool.collected_per_task
        for task in self.prepared.tasks if wanted else ():
            for number in range(wanted):
                trajectory = demonstrate(self.prepared.config, task, number, self.model.vlm)
                if trajectory is not None:
                    successes.add(scored(trajectory, self.model.vlm), now=0.0)

    def _scored(self, successes: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return successes with log-probabilities: their own, or those of the first weights.

        The ranks compute them if there are any, because one reply of a 7B model takes minutes on a CPU.
        """
        lack = any(turn.reply.logprobs is None for success in successes for turn in success.turns)
        if lack and isinstance(self.trainer, FsdpLearner):
            return self.trainer.score(successes)
        return [scored(success, self.model.vlm) for success in successes]
