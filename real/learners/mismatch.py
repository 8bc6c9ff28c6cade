"""How much the log-probabilities of worker and learner differ at equal weights.

Only turns sampled by the weights about to be trained are compared. For older turns the difference is mostly due to
learning since then, which ``importance/mismatch_mean`` shows for all turns. An update with only older turns measures
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dartsim.observe.records import MISMATCH_ALARM

logger = logging.getLogger(__name__)

MEAN, LARGEST, TOKENS = "learner/mismatch_mean", "learner/mismatch_max", "learner/mismatch_tokens"
"""Metrics of an update, in addition to the alarm: nats, nats, tokens compared."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Sums of |learner - worker| over tokens, nats; those of micro-batches add up to their batch's."""

    total: float = 0.0
    tokens: float = 0.0
    largest: float = 0.0

    def __add__(self, other: Mismatch) -> Mismatch:
        return Mismatch(self.total + other.total, self.tokens + other.tokens, max(self.largest, other.largest))

    @staticmethod
    def of(old_BT: Tensor, worker_BT: Tensor, mask_BT: Tensor, fresh_B: Tensor) -> Mismatch:
        """Compare the turns of a batch.

        Args:
            old_BT: The learner's log-probabilities before the update, nats.
            worker_BT: The worker's, NaN where unknown.
            mask_BT: True at response tokens.
            fresh_B: Turns that were sampled by the weights that are trained.
        """
        known_BT = mask_BT & worker_BT.isfinite() & fresh_B[:, None]
        gap = (old_BT.detach() - worker_BT)[known_BT].abs()
        if not gap.numel():
            return Mismatch()
        return Mismatch(float(gap.double().sum()), float(gap.numel()), float(gap.max()))

    def metrics(self, bound: float | None) -> Mapping[str, float]:
        """Return the metrics of an update; a mean above ``bound`` (nats) raises the alarm."""
        if not self.tokens:
            return {TOKENS: 0.0, MISMATCH_ALARM: 0.0}
        mean = self.total / self.tokens
        alarm = float(bound is not None and not mean <= bound)
        return {TOKENS: self.tokens, MISMATCH_ALARM: alarm, MEAN: mean, LARGEST: self.largest}


def report(metrics: Mapping[str, float], bound: float | None, *, update: int) -> None:
    """Log an update's alarm, if there is one."""
    if metrics.get(MISMATCH_ALARM):
        logger.warning(
            "update %d: log-probabilities of workers and learner differ by %.3g nats on the mean, at most %.3g, over "
            "%d tokens of equal weights; the bound is %.3g: do both compute in the same precision, with the same "
            "prompts, images and sampling masks?",
            update,
            metrics[MEAN],
            metrics[LARGEST],
            int(metrics[TOKENS]),
            bound,
        )
