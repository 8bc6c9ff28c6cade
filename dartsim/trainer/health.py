"""Health of an update: figures that reveal a bad objective before the success rate falls.

``Health`` holds sums, so micro-batches add up to their batch. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Sums over a batch; ``metrics`` has the shares and means.

    Trained turns are those left out neither as missing nor by selection.

    Attributes:
        turns: Turns with at least one response token.
        missing_turns: Turns whose worker gave no usable log-probabilities.
        masked_turns: Turns left out for that reason.
        unselected_turns: Turns left out by selection.
        tokens: Response tokens of trained turns; the next five are sums over them.
        ratio: Ratios, new to old.
        clipped_low: Tokens with a negative advantage whose ratio is below 1 - clip_low.
        clipped_high: Tokens with a positive advantage whose ratio is above 1 + clip_high.
        kl_old_new: k3 estimates of KL(old || new), nats.
        kl_reference: k3 estimates of KL(new || reference), nats; 0 without a reference.
        reference_tokens: Tokens behind ``kl_reference``.
        entropy: Entropies, nats.
        entropy_tokens: Tokens behind ``entropy``; 0 if none were given.
        weights: Importance weights behind the next five: one per trained token, or with ``sequence`` one per
            trained turn; weights that are 1 because log-probabilities are missing do not count.
        weight: Sum of weights.
        weight_squared: Sum of squared weights.
        raw_weight: Sum of weights before truncation.
        raw_weight_squared: Sum of their squares.
        capped: Weights that were truncated.
        mismatch: Sum of |old - worker| log-probabilities, nats, over all tokens with both.
        mismatch_tokens: Tokens behind ``mismatch``.
        mismatch_max: Largest difference, nats.
    """

    turns: float = 0.0
    missing_turns: float = 0.0
    masked_turns: float = 0.0
    unselected_turns: float = 0.0
    tokens: float = 0.0
    ratio: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    kl_old_new: float = 0.0
    kl_reference: float = 0.0
    reference_tokens: float = 0.0
    entropy: float = 0.0
    entropy_tokens: float = 0.0
    weights: float = 0.0
    weight: float = 0.0
    weight_squared: float = 0.0
    raw_weight: float = 0.0
    raw_weight_squared: float = 0.0
    capped: float = 0.0
    mismatch: float = 0.0
    mismatch_tokens: float = 0.0
    mismatch_max: float = 0.0

    def __add__(self, other: Health) -> Health:
        sums = {item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)}
        return Health(**sums | {"mismatch_max": max(self.mismatch_max, other.mismatch_max)})

    def metrics(self) -> Mapping[str, float]:
        """Return shares and means as named scalars, for ``UpdateResult.metrics``, leaving out those without data.

        Effective sample sizes are (sum w)^2 / (n sum w^2), in (0, 1]: of the truncated weights, and before truncation,
        which shows how far the sampling policy is from the learner's. A mean weight below 1 shrinks the gradient. At
        equal weights, ``mismatch_mean`` is the disagreement of the engines, nats.
        """
        scalars = {
            "objective/mean_ratio": _share(self.ratio, self.tokens),
            "objective/clipped_low_share": _share(self.clipped_low, self.tokens),
            "objective/clipped_high_share": _share(self.clipped_high, self.tokens),
            "objective/kl_old_new": _share(self.kl_old_new, self.tokens),
            "objective/kl_reference": _share(self.kl_reference, self.reference_tokens),
            "objective/entropy": _share(self.entropy, self.entropy_tokens),
            "objective/missing_share": _share(self.missing_turns, self.turns),
            "objective/masked_share": _share(self.masked_turns + self.unselected_turns, self.turns),
            "importance/mean_weight": _share(self.weight, self.weights),
            "importance/capped_share": _share(self.capped, self.weights),
            "importance/effective_sample_share": _share(self.weight**2, self.weights * self.weight_squared),
            "importance/raw_effective_sample_share": _share(self.raw_weight**2, self.weights * self.raw_weight_squared),
            "importance/mismatch_mean": _share(self.mismatch, self.mismatch_tokens),
            "importance/mismatch_max": self.mismatch_max if self.mismatch_tokens else None,
        }
        return {name: value for name, value in scalars.items() if value is not None}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
