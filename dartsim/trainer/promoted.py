"""``PromotedLearner``: a learner that is judged now and then, and goes back to its best weights when it got worse.

    update --(every so many)--> candidate and incumbent play the same attempts --> promoted     the new incumbent
                                                                                   kept         training goes on
                                                                                   rolled back  see below

A roll-back takes back what was learned, not what was counted: the update keeps its number and makes the version of
that number, whose weights are the incumbent's. Versions never go back, and a candidate that is given up never reaches
a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from dartsim.core.types import Batch, UpdateResult, Version, Weights
from dartsim.trainer.once import Once
from dartsim.trainer.promotion import Decision, HeldOutRewards, Promotions, Verdict

COUNTED = {
    Verdict.PROMOTE: "promotion/promoted",
    Verdict.KEEP: "promotion/kept",
    Verdict.ROLL_BACK: "promotion/rolled_back",
}
"""What each verdict is counted as: a metric of the update that was judged, and a count of the run."""

Evaluate = Callable[[Weights, int], HeldOutRewards]
"""Lets weights try the held-out tasks, and says how they did; equal seeds make attempts that can be compared."""


class Restorable(Protocol):
    """A learner that can go back."""

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights."""
        ...

    def weights(self) -> Weights:
        """Return the present weights."""
        ...

    def keep(self) -> None:
        """Remember weights and optimizer as they are, in the place of what was remembered before."""
        ...

    def go_back(self, version: Version) -> Weights:
        """Return to what was remembered, and return its weights as those of ``version``."""
        ...


class PromotedLearner:
    """A learner with promotion and roll-back.

    Invariant: the result of an update has the version of the update, whatever came of it.

    Attributes:
        incumbent: The promoted weights, at first those that the learner began with.

    Args:
        inner: What learns.
        evaluate: Lets weights try the held-out tasks. Candidate and incumbent are given the same seed, another one each
            time: an incumbent that was promoted by luck does not keep its luck. Called in a thread.
        promotions: The rule and its record; the incumbent is put in as its promoted version.
        every_updates: Updates between two judgements.
        on_promoted: Called, in that thread, while the learner's state is that of weights that were just promoted.
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
        self._once = Once(inner)
        self._decision: Decision | None = None
        """What was decided of the update in hand, and is not carried out yet."""
        self._evaluate = evaluate
        self._promotions = promotions
        self._every = every_updates
        self._on_promoted = on_promoted
        self.incumbent = inner.weights()
        inner.keep()
        promotions.promoted = HeldOutRewards(version=self.incumbent.version, rewards={})

    @property
    def promotions(self) -> Promotions:
        """The rule and its record."""
        return self._promotions

    @property
    def decisions(self) -> list[Decision]:
        """All judgements, oldest first."""
        return self._promotions.decisions

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, and judge what came of it if it is time.

        Raises:
            LearnerFault: As the learner.
            UpdateUncertain: If it trained, and the judgement failed: only what is left of that is then tried again.
        """
        result = await self._once.update(batch)
        with self._once.then(batch, "its judgement"):
            if batch.update % self._every:
                return result
            return await asyncio.to_thread(self._judge, result)

    def _judge(self, result: UpdateResult) -> UpdateResult:
        version = result.weights.version
        decision = self._decision
        if decision is None:
            before = self._evaluate(self.incumbent, version)
            decision = self._promotions.judge(self._evaluate(result.weights, version), against=before)
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
    found = {name: float(verdict is decision.verdict) for verdict, name in COUNTED.items()}
    if decision.promoted is not None:
        found["promotion/incumbent"] = float(decision.promoted)
    if decision.comparison is not None:
        found["promotion/gain"] = decision.comparison.gain
        found["promotion/low"] = decision.comparison.low
        found["promotion/high"] = decision.comparison.high
    return found
