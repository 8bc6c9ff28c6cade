"""``LearnerConfig``: how weights are updated, by one process or by several."""

from __future__ import annotations

from dataclasses import dataclass, field

from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.real.vlm.lora import LoraSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """How weights are updated. The defaults of the optimizer suit a model of width 64 from random weights.

    Attributes:
        objective: What is maximized.
        learning_rate: Of AdamW, after the warm-up.
        warmup_updates: Updates over which the learning rate rises linearly from 0.
        betas: Of AdamW.
        weight_decay: Of AdamW, on matrices only.
        max_grad_norm: Longer gradients are shortened to this (DART's code: 2).
        minibatches: Gradient steps on one pass over a batch, each on some of its groups.
        epochs: Passes over a batch.
        max_tokens: Padded tokens of a micro-batch; more is accumulated. It changes speed and memory only.
        checkpointing: Compute activations again in the backward pass instead of keeping them.
        lora: Train low-rank additions instead of the weights.
        mismatch_bound: Mean difference of log-probabilities between worker and learner at equal weights above which
            an update raises the alarm, nats; None: never.
    """

    objective: ObjectiveConfig = field(
        default_factory=lambda: ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02)
    )
    learning_rate: float = 7e-4
    warmup_updates: int = 0
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    minibatches: int = 1
    epochs: int = 1
    max_tokens: int = 4_096
    checkpointing: bool = False
    lora: LoraSettings | None = None
    mismatch_bound: float | None = None

    def __post_init__(self) -> None:
        for name in ("learning_rate", "max_grad_norm", "minibatches", "epochs", "max_tokens"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.mismatch_bound is not None and not self.mismatch_bound > 0:
            raise ValueError(f"mismatch_bound must be positive or None, got {self.mismatch_bound}")
