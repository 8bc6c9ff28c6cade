"""Evaluation of a model in training on held-out tasks, and promotion of its best weights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dartsim.core.ports import Learner
from dartsim.core.rng import Streams
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.observe.records import HELD_OUT
from dartsim.real.evaluate import evaluate
from dartsim.real.learners.backend import RealLearner
from dartsim.real.vlm import Vlm, VlmPolicy
from dartsim.run.prepare import PreparedRun
from dartsim.run.sim_cluster import desktop_maker
from dartsim.trainer.loop import IdempotentUpdate
from dartsim.trainer.promoted import PromotedLearner
from dartsim.trainer.promotion import Decision, HeldOutRewards, Promotions, Verdict

MODEL, CHECKPOINT = "model", "checkpoint"
"""Folders of a state: the model as transformers reads it, and the learner's whole state."""


class Trials:
    """Evaluates weights on the held-out tasks, without a cluster, with desktops and a model of its own.

    It runs in a thread while another model serves the run. That one knows weights by version, and a candidate that is
    rolled back has the version of weights that are published later.
    """

    def __init__(self, prepared: PreparedRun, vlm: Vlm, attempts: int) -> None:
        self._tasks = prepared.held_out
        self._attempts = attempts
        self._turn_limit = prepared.config.rollout.max_turns
        self._vlm = vlm.twin()
        maker = desktop_maker(prepared.config)
        self._desktops = [maker() for _ in range(min(64, len(self._tasks) * attempts))]

    def __call__(self, weights: Weights, seed: int = 0) -> HeldOutRewards:
        """Return the success of weights in the attempts of a seed."""
        policy = VlmPolicy(self._vlm, keep_versions=2)
        policy.add(Weights(1, weights.source))
        evaluation = evaluate(
            policy,
            self._desktops,
            self._tasks,
            version=1,
            turn_limit=self._turn_limit,
            attempts=self._attempts,
            seed=seed,
        )
        return replace(evaluation, version=weights.version)


class HeldOut:
    """Evaluates versions on tasks that are never trained on."""

    def __init__(self, prepared: PreparedRun, vlm: Vlm) -> None:
        attempts = prepared.config.trainer.evaluation.attempts_per_task
        # On real desktops, attempts go among those of the run (``HeldOutAttempts``).
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
            # In a thread: in real time, desktops and engines continue meanwhile.
            evaluation = await asyncio.to_thread(self._held_out.evaluate, result.weights)
            if evaluation is None:
                return result
            return replace(result, metrics={**result.metrics, HELD_OUT: evaluation.mean or 0.0})


def promoting(prepared: PreparedRun, vlm: Vlm, trainer: RealLearner, folder: Path | None) -> PromotedLearner | None:
    """Return the learner with the configured promotion; None if nothing is promoted."""
    settings = prepared.config.trainer.promotion
    if not settings.enabled:
        return None

    def keep(weights: Weights) -> None:
        if folder is not None:
            write_state(folder, trainer)

    return PromotedLearner(
        trainer,
        Trials(prepared, vlm, settings.attempts_per_task),
        Promotions(rule=settings, rng=Streams(prepared.config.run.seed).rng("trainer/promotion")),
        every_updates=settings.every_updates,
        on_promoted=keep,
    )


def write_state(folder: Path, trainer: RealLearner) -> None:
    """Write the model as transformers reads it, and the learner's state, to continue from."""
    trainer.save_model(folder / MODEL)
    trainer.save(folder / CHECKPOINT)


def promotion_figures(decisions: Sequence[Decision], best: Weights) -> dict[str, Any]:
    """Return what a run's summary says about promotion."""
    verdicts = [decision.verdict for decision in decisions]
    return {
        "promoted": verdicts.count(Verdict.PROMOTE),
        "kept": verdicts.count(Verdict.KEEP),
        "rolled_back": verdicts.count(Verdict.ROLL_BACK),
        "best_version": best.version,
        "decisions": [_row(decision) for decision in decisions],
    }


def _row(decision: Decision) -> dict[str, Any]:
    compared = decision.comparison
    bounds = {} if compared is None else {"gain": compared.gain, "low": compared.low, "high": compared.high}
    return {
        "version": decision.version,
        "verdict": decision.verdict.value,
        "reason": decision.reason,
        "promoted": decision.promoted,
        **bounds,
    }
