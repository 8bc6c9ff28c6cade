"""Settings of the objective, and those of DART: the paper's and the released code's. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from dartsim.trainer.advantages import AdvantageConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """What is maximised over a batch of turns.

    Attributes:
        ratio: Of new to old probabilities: each ``token``'s, or one a turn, the geometric mean over its
            tokens (``sequence``: GSPO).
        clip_low: The ratio is clipped below at 1 - clip_low, in [0, 1].
        clip_high: The ratio is clipped above at 1 + clip_high, >= 0.
        dual_clip: Where advantages are negative, the surrogate is at least dual_clip * advantage, > 1; None:
            off.
        kl_coefficient: Beta, weight of the k3 estimate of the divergence from the reference, >= 0; at 0 no
            reference is needed.
        importance: Truncated importance sampling between the learner's old policy and the worker that
            sampled: ``off``, each ``token`` its own weight, or one a turn, the product over its tokens
            (``sequence``).
        importance_cap: Largest such weight, C > 0.
        missing: A turn whose worker gave no log-probabilities: left out (``mask``), or weight 1 (``one``).
            Both are counted. Without importance sampling no turn needs them, and all are trained.
        aggregation: What is averaged: all tokens (``token``); a turn's tokens, then turns (``turn``: DART); a
            trajectory's tokens, then trajectories (``trajectory``); a turn's tokens, a group's turns, then
            groups (``group``).
        count_unselected: Whether turns that selection left out count in the average, with a value of 0. The
            paper's mean is over all turns.
        mask_covers_kl: Whether selection takes the divergence away too (the paper), or the surrogate only.
        entropy_coefficient: Weight of the entropy bonus.
        log_ratio_limit: Logarithms of ratios are clamped to plus and minus this before ``exp``, nats, so that
            no infinity meets a zero gradient, which would make it NaN.
        advantage: Group statistics.
    """

    ratio: Literal["token", "sequence"] = "token"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = None
    kl_coefficient: float = 0.1
    importance: Literal["off", "token", "sequence"] = "token"
    importance_cap: float = 1.0
    missing: Literal["mask", "one"] = "mask"
    aggregation: Literal["token", "turn", "trajectory", "group"] = "turn"
    count_unselected: bool = True
    mask_covers_kl: bool = True
    entropy_coefficient: float = 0.0
    log_ratio_limit: float = 20.0
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("clip_low", 0.0 <= self.clip_low <= 1.0, "in [0, 1]"),
            ("clip_high", self.clip_high >= 0.0, "at least 0"),
            ("dual_clip", self.dual_clip is None or self.dual_clip > 1.0, "more than 1, or None"),
            ("kl_coefficient", self.kl_coefficient >= 0.0, "at least 0"),
            ("importance_cap", self.importance_cap > 0.0, "positive"),
            ("log_ratio_limit", self.log_ratio_limit > 0.0, "positive"),
        ):
            if not good:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)}")


DART_PAPER = ObjectiveConfig()
"""Step-wise GRPO as the paper has it: every default of ``ObjectiveConfig``.

What the paper does not say is chosen here: turns without log-probabilities are masked.
"""

DART_RELEASED = replace(
    DART_PAPER,
    ratio="sequence",
    clip_low=0.1,
    missing="one",
    advantage=AdvantageConfig(spread="unbiased", epsilon=1e-6, lone_sample="reward"),
)
"""What the released scripts train with: GSPO. High-entropy selection is off there (curation)."""

DART_RELEASED_PPO = replace(DART_RELEASED, ratio="token", dual_clip=10.0)
"""The released code's other loss, PPO with dual clip; its c = 10 has no part in GSPO."""


def differences(first: Any, second: Any, *, prefix: str = "") -> Mapping[str, tuple[Any, Any]]:
    """Return the fields in which two settings of one class differ, nested ones by dotted name."""
    found: dict[str, tuple[Any, Any]] = {}
    for item in fields(first):
        one, other = getattr(first, item.name), getattr(second, item.name)
        name = f"{prefix}{item.name}"
        if is_dataclass(one) and is_dataclass(other):
            found.update(differences(one, other, prefix=f"{name}."))
        elif one != other:
            found[name] = (one, other)
    return found
