"""The training loop: objective, optimizer, evaluation, promotion, several processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dartsim.core.section import Deadline, Positive, Seconds, Section, Share


class AdvantageConfig(Section):
    """Group statistics of the advantage."""

    level: Literal["turn", "trajectory"] = Field(
        "turn", description="What is one sample of the group's statistics (DART: a turn)."
    )
    spread: Literal["biased", "unbiased", "none"] = Field(
        "biased",
        description="What a difference from the mean is divided by: the standard deviation with n (biased) or n - 1 "
        "(unbiased, DART released) in its denominator, or nothing.",
    )
    epsilon: float = Field(0.0, ge=0.0, description="Added to it (DART released: 1e-6).")
    lone_sample: Literal["zero", "reward"] = Field(
        "zero", description="Advantage of a group's only sample (DART released: reward)."
    )
    leave_one_out: bool = Field(False, description="Compare with the group's other attempts only.")


class ObjectiveConfig(Section):
    """What is maximized over a batch of turns; defaults are those of DART's paper.

    What the paper does not say is chosen here: turns without log-probabilities are masked.
    """

    ratio: Literal["token", "sequence"] = Field(
        "token", description="Of new to old probabilities: each token's, or one a turn (sequence: GSPO, DART released)."
    )
    clip_low: Share = Field(0.2, description="Lower clip (DART released: .1).")
    clip_high: float = Field(0.28, ge=0.0, description="Upper clip.")
    dual_clip: float | None = Field(None, gt=1.0, description="Bound for negative advantages (DART released PPO: 10).")
    kl_coefficient: float = Field(0.1, ge=0.0, description="Weight of the divergence from the first weights.")
    importance: Literal["off", "token", "sequence"] = Field(
        "token", description="Truncated importance sampling: off, a weight a token, or one a turn (sequence)."
    )
    importance_cap: float = Field(1.0, gt=0.0, description="Largest importance weight.")
    missing: Literal["mask", "one"] = Field("mask", description="Turns without log-probabilities (DART released: one).")
    aggregation: Literal["token", "turn", "trajectory", "group"] = Field(
        "turn", description="What is averaged: all tokens; a turn's, then turns (DART); by trajectory; by group."
    )
    count_unselected: bool = Field(True, description="Whether unselected turns count in the average.")
    mask_covers_kl: bool = Field(True, description="Whether selection takes the divergence away too.")
    entropy_coefficient: float = Field(0.0, description="Weight of the entropy bonus (DART: 0).")
    log_ratio_limit: float = Field(20.0, gt=0.0, description="Clamp of log ratios, nats.")
    advantage: AdvantageConfig = Field(default_factory=AdvantageConfig, description="Group statistics.")


class OptimizerConfig(Section):
    """How weights follow the gradient."""

    learning_rate: float = Field(1e-6, gt=0.0, description="Of AdamW (DART: 1e-6; a tiny model wants 1e-3).")
    warmup_updates: int = Field(0, ge=0, description="Updates over which it rises from 0.")
    beta1: float = Field(0.9, ge=0.0, lt=1.0, description="Of AdamW: decay of the mean gradient.")
    beta2: float = Field(0.98, ge=0.0, lt=1.0, description="Of AdamW: decay of the mean squared gradient.")
    weight_decay: float = Field(0.0, ge=0.0, description="Of AdamW, on matrices.")
    max_grad_norm: float = Field(1.0, gt=0.0, description="Longer gradients are shortened (DART's code: 2).")
    minibatches: Positive = Field(
        1,
        description="Gradient steps of one pass over a batch (DART released: 2). One step has ratios of 1, so "
        "that nothing is clipped.",
    )
    epochs: Positive = Field(1, description="Passes over a batch.")
    max_tokens: Positive = Field(8192, description="Padded tokens of a micro-batch.")


class LoraConfig(Section):
    """Low-rank additions in place of the weights."""

    rank: Positive | None = Field(None, description="Of each addition; none: all weights are trained.")
    alpha: Positive = Field(16, description="Additions are scaled by alpha / rank.")


class EvaluationConfig(Section):
    """Evaluation on held-out tasks."""

    every_updates: Positive | None = Field(None, description="Updates between evaluations; none: first and last only.")
    attempts_per_task: Positive = Field(1, description="Attempts at each held-out task.")


class PromotionConfig(Section):
    """Promotion of better weights on held-out tasks, and the way back from worse ones."""

    enabled: bool = Field(False, description="Whether new weights are judged against the promoted ones.")
    every_updates: Positive = Field(20, description="Updates between judgements.")
    attempts_per_task: Positive = Field(2, description="Attempts of each of the two at each held-out task.")
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Of each bound of the gain, one-sided.")
    min_gain: float = Field(0.0, description="Promoted if the lower bound of the gain is above it.")
    max_loss: Annotated[float, Field(ge=0.0)] | None = Field(
        0.0, description="Rolled back if the upper bound of the gain is below minus this; none: never."
    )
    min_tasks: Positive = Field(8, description="Fewer held-out tasks decide nothing.")
    resamples: int = Field(4_000, ge=100, description="Of the bootstrap over tasks.")


class FsdpConfig(Section):
    """The learner of several processes (torch FSDP2)."""

    ranks: Positive = Field(2, description="Processes, one GPU each where there are some.")
    nodes: Positive = Field(1, description="Machines, with equally many of them each; the run is on the first.")
    address: str | None = Field(None, description="HOST:PORT of the first machine, where ranks of several nodes meet.")
    interface: str | None = Field(
        None, description="Network interface between nodes; none: the one that the machine's name resolves to."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: GPUs if there is one for each rank.")
    gpus: list[int] = Field(default_factory=list, description="GPUs of a node's ranks, in order; none: the first ones.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of what is computed; weights and optimizer state keep the model's own."
    )
    checkpointing: bool = Field(False, description="Compute activations again instead of keeping them.")
    checkpoint_every_updates: Positive = Field(
        1, description="Updates between checkpoints; a rank that dies costs the updates since the last one."
    )
    keep_weights: Positive = Field(4, description="Newest exported weights kept on disk for workers.")
    folder: str | None = Field(
        None, description="Where batches, checkpoints and weights are kept; none: a temporary folder."
    )
    start_seconds: Deadline = Field(600.0, description="Time until all ranks must be up.")
    update_seconds: Deadline = Field(7200.0, description="Longest time of an update.")

    @property
    def ranks_per_node(self) -> int:
        """Processes on each machine."""
        return self.ranks // self.nodes


class RetryConfig(Section):
    """What is done about failed updates."""

    first_seconds: Seconds = Field(10.0, description="Wait after a first failure, doubled with each one in a row.")
    max_seconds: Seconds = Field(600.0, description="Longest such wait.")
    max_failures: Positive | None = Field(None, description="Failures in a row that end the run; none: never.")


class TrainerConfig(Section):
    """The training loop."""

    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig, description="What is maximized.")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="How weights are updated.")
    lora: LoraConfig = Field(default_factory=LoraConfig, description="Low-rank additions.")
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig, description="Held-out tasks.")
    promotion: PromotionConfig = Field(default_factory=PromotionConfig, description="Promotion and roll-back.")
    fsdp: FsdpConfig = Field(default_factory=FsdpConfig, description="Learner of several processes.")
    mismatch_bound: float | None = Field(
        None,
        gt=0.0,
        description="Mean difference of log-probabilities, worker to learner at equal weights, that is an alarm, nats.",
    )

    wait_for_sync: bool = Field(False, description="Whether training waits until all workers have new weights.")
    publish_every: Positive = Field(1, description="Updates between two publications (verl: T; slime: its interval).")
    publish_wait: Literal["nothing", "running", "batch"] = Field(
        "nothing",
        description="What new weights wait for: nothing; the groups that run, while none begins (verl without partial "
        "rollout); or the whole next batch (slime's one-step-off, OpenRLHF).",
    )
    retry: RetryConfig = Field(default_factory=RetryConfig, description="Failed updates.")
