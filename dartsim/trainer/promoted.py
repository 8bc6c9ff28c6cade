"""``PromotedLearner``: a learner that is judged now and then, and returns to its best weights when it got worse.

    update --(every so many)--> candidate and incumbent play the same attempts --> promoted     the new incumbent
                                                                                   kept         training goes on
                                                                                   rolled back  see below

A roll-back discards weights, not counts: the update keeps its number and makes the version of that number, whose
weights are the incumbent's. Versions never decrease, and a rejected candidate never reaches a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from dartsim.core.types import Batch, UpdateResult, Version, Weights
from dartsim.trainer.loop import IdempotentUpdate
from dartsim.trainer.promotion import COUNTED, Decision, HeldOutRewards, Promotions, Verdict

Evaluate = Callable[[Weights, int], HeldOutRewards]
"""Evaluates weights on the held-out tasks; equal seeds make attempts comparable."""


class Restorable(Protocol):
    """A learner that can return to an earlier state."""

    async def update(self, batch: Batch) -> UpdateResult: ...

    def weights(self) -> Weights: ...

    def keep(self) -> None:
        """Save the present weights and optimizer, in place of those saved before."""
        ...

    def go_back(self, version: Version) -> Weights:
        """Restore what was saved, and return its weights as those of ``version``."""
        ...


class PromotedLearner:
    """A learner with promotion and roll-back.

    Invariant: the result of an update has the version of the update, whatever the verdict.

    Args:
        inner: The learner.
        evaluate: Evaluates weights, in a thread. Candidate and incumbent get the same seed, a new one each time: luck
            that promoted an incumbent must not last.
        promotions: The rule and its record; the incumbent becomes its promoted version.
        every_updates: Updates between two judgments.
        on_promoted: Called in that thread, while the learner's state is that of the weights just promoted.
    """

    def __init__(
        self,
        inner: Restorable,
        evaluate: Evaluate,
        promotions: Promotions,
        *,
        every_updates: int,
        on_promoted: Callable[[Weights], None] | None = None,
    ) -> None:
        if every_updates < 1:
            raise ValueError(f"every_updates must be at least 1, got {every_updates}")
        self._inner = inner
        self._idempotent = IdempotentUpdate(inner)
        self._decision: Decision | None = None
        """The decision on the present update that is not carried out yet."""
        self._evaluate = evaluate
        self.promotions = promotions
        self._every = every_updates
        self._on_promoted = on_promoted
        self.incumbent = inner.weights()
        inner.keep()
        promotions.promoted = HeldOutRewards(version=self.incumbent.version, rewards={})

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, and judge the new weights if it is time; a judgment that failed is repeated without training again."""
        result = await self._idempotent.update(batch)
        with self._idempotent.then(batch, "its judgment"):
            if batch.update % self._every:
                return result
            return await asyncio.to_thread(self._judge, result)

    def _judge(self, result: UpdateResult) -> UpdateResult:
        version = result.weights.version
        decision = self._decision
        if decision is None:
            before = self._evaluate(self.incumbent, version)
            decision = self.promotions.judge(self._evaluate(result.weights, version), against=before)
            self._decision = decision
        weights = result.weights
        if decision.verdict is Verdict.PROMOTE:
            self.incumbent = weights
            self._inner.keep()
            if self._on_promoted is not None:
                self._on_promoted(weights)
        elif decision.verdict is Verdict.ROLL_BACK:
            weights = self._inner.go_back(version)
        self._decision = None
        return replace(result, weights=weights, metrics={**result.metrics, **_metrics(decision)})


def _metrics(decision: Decision) -> dict[str, float]:
    metrics = {name: float(verdict is decision.verdict) for verdict, name in COUNTED.items()}
    if decision.promoted is not None:
        metrics["promotion/incumbent"] = float(decision.promoted)
    if (comparison := decision.comparison) is not None:
        figures = {"gain": comparison.gain, "low": comparison.low, "high": comparison.high}
        metrics |= {f"promotion/{name}": value for name, value in figures.items()}
    return metrics
