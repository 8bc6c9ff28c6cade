"""The training loop: objective, optimizer, evaluation, several processes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dartsim.core.registry import Choice, ComponentSection
from dartsim.core.section import Fuzzed, Positive, Section, Share

ADVANTAGE = Choice("advantage", "group")


class AdvantageConfig(ComponentSection):
    """Group statistics: settings of every rule for advantages."""

    level: Literal["turn", "trajectory"] = Field("turn", description="Unit of the group's statistics (DART: turn).")
    spread: Literal["biased", "unbiased", "none"] = Field(
        "biased",
        description="Divisor of the difference from the mean: the standard deviation with n (biased) or n - 1 "
        "(unbiased, DART released) in the denominator, or none.",
    )
    epsilon: float = Field(0.0, ge=0.0, description="Added to that divisor (DART released: 1e-6).")
    lone_sample: Literal["zero", "reward"] = Field(
        "zero", description="Advantage of a group's only sample (DART released: reward)."
    )


class ObjectiveConfig(Section):
    """What is maximized over a batch of turns; defaults are DART's paper's.

    Chosen here, because the paper does not say: turns without log-probabilities are masked.
    """

    ratio: Literal["token", "sequence"] = Field(
        "token", description="New to old probabilities per token, or per turn (sequence: GSPO, DART released)."
    )
    clip_low: Share = Field(0.2, description="Lower clip of the ratio (DART released: 0.1).")
    clip_high: float = Field(0.28, ge=0.0, description="Upper clip of the ratio.")
    kl_coefficient: float = Field(0.1, ge=0.0, description="Weight of the KL divergence from the initial weights.")
    importance: Literal["off", "token", "sequence"] = Field(
        "token", description="Truncated importance sampling: off, per token, or per turn (sequence)."
    )
    importance_cap: float = Field(1.0, gt=0.0, description="Largest importance weight.")
    missing: Literal["mask", "one"] = Field("mask", description="Turns without log-probabilities (DART released: one).")
    aggregation: Literal["token", "turn", "trajectory", "group"] = Field(
        "turn", description="How losses are averaged: over tokens; over turns (DART); over trajectories; over groups."
    )
    entropy_coefficient: float = Field(0.0, description="Weight of the entropy bonus (DART: 0).")
    advantage: Annotated[AdvantageConfig, ADVANTAGE] = Field(
        default_factory=ADVANTAGE, description="Rule for the advantage of each turn."
    )


class OptimizerConfig(Section):
    """How gradients change the weights."""

    learning_rate: float = Field(1e-6, gt=0.0, description="Learning rate of AdamW (DART: 1e-6; tiny models: 1e-3).")
    weight_decay: float = Field(0.0, ge=0.0, description="AdamW: weight decay of matrices.")
    max_grad_norm: float = Field(1.0, gt=0.0, description="Largest norm of the gradient (DART's code: 2).")
    minibatches: Positive = Field(
        1,
        description="Gradient steps per pass over a batch (DART released: 2). With one step all ratios are 1, so "
        "nothing is clipped.",
    )
    epochs: Positive = Field(1, description="Passes over a batch.")
    max_tokens: Positive = Field(8192, description="Tokens of a micro-batch; a longer turn is alone.")
    pack: Literal["trajectories", "turns"] = Field(
        "trajectories",
        description="trajectories: turns whose prompt begins with an earlier turn's prompt and reply share a sequence, "
        "as they do between the cuts of policy.images_after_cut; same gradient, fewer tokens. turns: only turns with "
        "equal prompts do.",
    )


class LoraConfig(Section):
    """Low-rank adapters, trained in place of the weights."""

    rank: Positive | None = Field(None, description="Rank of LoRA; none: all weights are trained.")
    alpha: Positive = Field(16, description="LoRA is scaled by alpha / rank.")


class EvaluationConfig(Section):
    """Evaluation on held-out tasks."""

    every_updates: Annotated[Positive | None, Fuzzed()] = Field(
        None, description="Updates between evaluations; none: first and last only."
    )
    attempts_per_task: Positive = Field(1, description="Attempts at each held-out task, of `dartsim eval` too.")


class FsdpConfig(Section):
    """The learner of several processes (torch FSDP2)."""

    ranks: Positive = Field(2, description="Number of processes, one GPU each if there are GPUs.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: GPUs if there is one per rank.")
    gpus: list[int] = Field(default_factory=list, description="GPUs of the ranks, in order; none: the first ones.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the computation; trained weights and optimizer state are in float32."
    )
    checkpointing: bool = Field(False, description="Recompute activations instead of storing them.")
    keep_weights: Positive = Field(4, description="Number of newest exported weights kept on disk for workers.")
    folder: str | None = Field(
        None, description="Folder of batches, checkpoints and weights, which all nodes see; none: a temporary folder."
    )
    start_seconds: ClassVar[float] = 600.0
    """Time limit for starting all ranks."""
    update_seconds: ClassVar[float] = 7200.0
    """Time limit of an update."""


class TrainerConfig(Section):
    """The training loop."""

    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig, description="Objective.")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="Optimizer.")
    lora: LoraConfig = Field(default_factory=LoraConfig, description="LoRA.")
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig, description="Evaluation on held-out tasks.")
    fsdp: FsdpConfig = Field(default_factory=FsdpConfig, description="Learner of several processes (torch FSDP2).")
    checkpoint_every_updates: Positive = Field(
        1, description="Updates between checkpoints; those since the last one are lost if the process or a rank dies."
    )
    mismatch_bound: float | None = Field(
        None,
        gt=0.0,
        description="Alarm above this mean difference of log-probabilities of worker and learner at equal weights, "
        "nats.",
    )

    wait_for_sync: bool = Field(False, description="Train only once all workers have the newest weights.")
    publish_every: Annotated[Positive, Fuzzed((1, 2))] = Field(
        1, description="Updates between two publications (verl: T; slime: its interval)."
    )
    publish_wait: Annotated[Literal["nothing", "running", "batch"], Fuzzed(("nothing", "running"))] = Field(
        "nothing",
        description="What a publication waits for: nothing; the running groups, while no group starts (running: verl "
        "without partial rollout); or the whole next batch (batch: slime's one-step-off, OpenRLHF).",
    )
