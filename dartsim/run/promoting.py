"""Promotion of a real model in a run: the rule, what it is judged by, and where the best weights are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.core.rng import Streams
from dartsim.core.types import Weights
from dartsim.real.learners import RealLearner
from dartsim.real.vlm import Vlm
from dartsim.run.held_out import Trials
from dartsim.run.models import Models
from dartsim.trainer.promoted import PromotedLearner
from dartsim.trainer.promotion import Decision, Evaluation, PromotionRule, Promotions, Verdict

MODEL, CHECKPOINT = "model", "checkpoint"
"""Folders of a state: the model as transformers reads it, and the learner's whole state."""


class Judge:
    """Lets weights try the held-out tasks as often as promotion wants."""

    def __init__(self, found: Models, vlm: Vlm) -> None:
        self._trials = Trials(found, vlm, found.config.trainer.promotion.attempts_per_task)

    def __call__(self, weights: Weights, seed: int) -> Evaluation:
        """Return how weights do in the attempts of a seed."""
        return Evaluation(version=weights.version, rewards=self._trials(weights, seed).scores)


def promoting(found: Models, vlm: Vlm, trainer: RealLearner, folder: Path | None) -> PromotedLearner | None:
    """Return the learner with the configured promotion; None if nothing is promoted.

    Args:
        found: The configuration and what it names.
        vlm: The model in training.
        trainer: What trains it.
        folder: Where the best weights are written as they are promoted; None for nowhere.
    """
    settings = found.config.trainer.promotion
    if not settings.enabled:
        return None

    def keep(weights: Weights) -> None:
        if folder is not None:
            write_state(folder, trainer)

    return PromotedLearner(
        trainer,
        Judge(found, vlm),
        Promotions(rule=promotion_rule(found.config), rng=Streams(found.config.run.seed).rng("trainer/promotion")),
        every_updates=settings.every_updates,
        on_promoted=keep,
    )


def promotion_rule(config: Config) -> PromotionRule:
    """Return the configured rule."""
    settings = config.trainer.promotion
    return PromotionRule(
        confidence=settings.confidence,
        min_gain=settings.min_gain,
        max_loss=settings.max_loss,
        min_tasks=settings.min_tasks,
        resamples=settings.resamples,
    )


def write_state(folder: Path, trainer: RealLearner) -> None:
    """Write the model, ready to be loaded by transformers, and the learner's state, ready to go on."""
    trainer.save_model(folder / MODEL)
    trainer.save(folder / CHECKPOINT)


def promotion_figures(decisions: Sequence[Decision], best: Weights) -> dict[str, Any]:
    """Return what a run's summary holds: the counts, the best version, and each judgement."""
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
