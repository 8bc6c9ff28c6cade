"""Evaluation of a model in training on held-out tasks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.observe.records import HELD_OUT
from dartsim.real.evaluate import HeldOutRewards, evaluate
from dartsim.real.learners.backend import RealLearner
from dartsim.real.vlm import Vlm, VlmPolicy
from dartsim.run.prepare import PreparedRun
from dartsim.run.sim_cluster import desktop_maker
from dartsim.trainer.loop import IdempotentUpdate

MODEL, CHECKPOINT = "model", "checkpoint"
"""Folders of a state: the model as transformers reads it, and the learner's whole state."""


class Trials:
    """Evaluates weights on the held-out tasks, without a cluster, with its own desktops and model.

    It runs in a thread while another model serves the run. Every version plays the same attempts with the same seeds.
    """

    def __init__(self, prepared: PreparedRun, vlm: Vlm, attempts: int) -> None:
        self._tasks = prepared.held_out
        self._attempts = attempts
        self._turn_limit = prepared.config.rollout.max_turns
        self._vlm = vlm.twin()
        maker = desktop_maker(prepared.config)
        self._desktops = [maker() for _ in range(min(64, len(self._tasks) * attempts))]

    def __call__(self, weights: Weights) -> HeldOutRewards:
        policy = VlmPolicy(self._vlm, keep_versions=2)
        policy.add(Weights(1, weights.source))
        evaluation = evaluate(
            policy,
            self._desktops,
            self._tasks,
            version=1,
            turn_limit=self._turn_limit,
            attempts=self._attempts,
        )
        return replace(evaluation, version=weights.version)


class HeldOut:
    """Evaluates versions on tasks that are never trained on."""

    def __init__(self, prepared: PreparedRun, vlm: Vlm) -> None:
        attempts = prepared.config.trainer.evaluation.attempts_per_task
        # On real desktops, held-out attempts run among those of the run (``HeldOutAttempts``).
        trials = prepared.held_out and not prepared.config.backend.boots
        self._trials = Trials(prepared, vlm, attempts) if trials else None
        self.evaluations: list[HeldOutRewards] = []

    def evaluate(self, weights: Weights) -> HeldOutRewards | None:
        if self._trials is None:
            return None
        evaluation = self._trials(weights)
        self.evaluations.append(evaluation)
        return evaluation


class EvaluatedLearner:
    """A learner whose weights are evaluated on held-out tasks every few updates."""

    def __init__(self, inner: Learner, held_out: HeldOut, every_updates: int | None, *, first: Weights) -> None:
        self._idempotent = IdempotentUpdate(inner)
        self._held_out = held_out
        self._every = every_updates
        self.newest = first

    async def update(self, batch: Batch) -> UpdateResult:
        result = await self._idempotent.update(batch)
        self.newest = result.weights
        with self._idempotent.then(batch, "its evaluation"):
            if self._every is None or batch.update % self._every:
                return result
            # In a thread, so that in real time desktops and engines continue.
            evaluation = await asyncio.to_thread(self._held_out.evaluate, result.weights)
            if evaluation is None:
                return result
            return replace(result, metrics={**result.metrics, HELD_OUT: evaluation.mean or 0.0})


def write_state(folder: Path, trainer: RealLearner) -> None:
    """Write the model as transformers reads it, and the learner's state, to continue from."""
    trainer.save_model(folder / MODEL)
    trainer.save(folder / CHECKPOINT)
