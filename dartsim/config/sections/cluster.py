"""The modeled cluster: machines, desktops, engines, the trainer's speed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dartsim.config.sections.faults import FaultsConfig
from dartsim.core.section import Fuzzed, Positive, Seconds, Section, Share


class HostsConfig(Section):
    """The machines that desktops run on."""

    count: Annotated[Positive, Fuzzed((1, 2))] = Field(4, description="Number of machines.")
    cores: float = Field(32.0, gt=0, description="Cores of each machine.")
    slow_count: int = Field(0, ge=0, description="Number of slow machines among them, with slow_cores cores each.")
    slow_cores: float = Field(1.0, gt=0, description="Cores of a slow machine.")
    memory_gib: float = Field(128.0, gt=0, description="Memory of each machine, GiB.")
    concurrent_starts: Annotated[Positive, Fuzzed((2, 1))] = Field(
        4, description="Desktops that one machine boots at the same time."
    )


class RooflineConfig(Section):
    """An engine's times and memory from a data sheet and a model's shape, as `dartsim predict` derives them."""

    iteration_seconds: Seconds = Field(0.0, description="Reading all weights, per iteration; 0: engine.gpu is used.")
    expert_seconds: Seconds = Field(0.0, description="Reading all routed experts besides, if all are needed.")
    expert_share: Share = Field(0.0, description="Share of the experts that one token is routed to.")
    token_seconds: Seconds = Field(0.0, description="Computing one token, without attention.")
    kv_seconds: Seconds = Field(0.0, description="Reading one token of context of a decoding sequence.")
    pair_seconds: Seconds = Field(0.0, description="Attention of a prompt, per (query, key) pair.")
    sequence_seconds: Seconds = Field(12e-6, description="Scheduling and sampling, per sequence and iteration.")
    kv_tokens: Positive = Field(1_000_000, description="Tokens that the cache holds.")
    max_num_seqs: Positive = Field(256, description="Sequences computed at the same time, below 8,192.")


class EngineConfig(Section):
    """The inference engine of each worker."""

    model: Annotated[Literal["fluid", "batch", "shared"], Fuzzed(("shared", "batch", "fluid"))] = Field(
        "fluid",
        description="Timing model: fluid (continuous batching on a GPU), or as fitted by `dartsim cluster`: batch "
        "(all waiting requests form one batch; a worker in this process) or shared (all requests run at "
        "once and slow each other down; a server).",
    )
    batch_seconds: Seconds = Field(0.01, description="batch, shared: fixed time of a batch, whatever its size.")
    request_seconds: Seconds = Field(0.002, description="batch, shared: additional time for each request in the batch.")
    batch_spread: dict[str, Any] | float = Field(
        1.0, description="batch, shared: random factor of the time of a batch (or request), a distribution of mean 1."
    )
    batch_memory: float = Field(
        0.0, ge=0.0, lt=1.0, description="batch, shared: correlation of successive factors, if they are quantiles."
    )
    max_batch: Positive = Field(64, description="batch: largest number of requests in a batch.")
    control_seconds: Annotated[Seconds, Fuzzed((0.0, 0.5))] = Field(
        0.0,
        description="Time of the control process per request, on a single core that all requests share (real OSWorld "
        "at 1080p: 0.0105, `python -m experiments.driver`).",
    )
    gpu: str = Field(
        "h100_fp8", description="GPU profile, see `dartsim config --list profiles` (DART: quantized H100)."
    )
    roofline: RooflineConfig = Field(default_factory=RooflineConfig, description="Times in place of a GPU profile's.")
    overhead_seconds: Annotated[Seconds, Fuzzed((0.0, 1.0))] = Field(
        1.5, description="Network, base64 and image preprocessing of a request (1 to 3)."
    )
    prepare_seconds: Seconds = Field(
        0.0, description="Start of a weight load, before reload_seconds: running requests continue, none arrive."
    )
    reload_seconds: Annotated[Seconds, Fuzzed((10.0, 30.0, 1.0))] = Field(
        300.0, description="Time to load weights from disk on one slice (100 to 300)."
    )
    transfer_seconds: Seconds | None = Field(
        None, description="Time of loading weights without a restart (modes drain and keep); none: reload_seconds."
    )
    lend_seconds: Seconds | None = Field(
        None, description="Time of loading weights into an engine on a lent GPU; none: as into the others."
    )
    release_seconds: Seconds = Field(
        10.0,
        description="Time until a lent GPU is the trainer's again: the engine's memory goes, the trainer's returns.",
    )
    prompt: Literal["gui", "text", "dialog"] = Field(
        "gui",
        description="Prompts: screenshots and earlier replies (gui), one short text (text), or it and all earlier "
        "replies (dialog).",
    )
    prompt_tokens: Positive = Field(345, description="text, dialog: length of the first prompt, tokens.")
    reply_tokens: dict[str, Any] | float | None = Field(
        None, description="Length of a reply, tokens: a number or a distribution; none: DART's measured replies."
    )
    longest_reply_tokens: Positive = Field(28_672, description="Longest reply, tokens, if reply_tokens is set.")


class EnvConfig(Section):
    """The latencies of desktops."""

    profile: str = Field("dart", description="Named latency profile; see `dartsim config --list profiles`.")
    latency: dict[str, Any] = Field(
        default_factory=dict,
        description="Other latencies than the profile's: start, boot, setup, step, evaluate, teardown = seconds or a "
        "distribution.",
    )


class LearnerConfig(Section):
    """The trainer's speed."""

    fixed_seconds: Annotated[Seconds, Fuzzed((20.0, 60.0, 5.0))] = Field(
        270.0, description="Fixed time of an update, with saving (whole: 900 to 1,300 s)."
    )
    kilotoken_seconds: Seconds = Field(
        0.086,
        description="Additional time for each 1,000 tokens that an update computes. Fitted to 21.2 min per version of "
        "DART: 913 turns, 12,800 tokens each, one sequence per turn.",
    )
    gpus: Positive = Field(
        8, description="GPUs of the trainer; used by costs, `dartsim plan` and ranks (DART: 8 H100)."
    )
    ranks: Positive | None = Field(
        None,
        description="Groups of GPUs that share an update's sequences by their real lengths, and wait for the slowest; "
        "none: every trajectory counts with the mean lengths of its turns, and its tokens are shared evenly.",
    )
    copies: Positive = Field(
        1, description="ranks: sequences that each one stands for, if a cluster is simulated at a smaller scale."
    )
    step_seconds: Seconds = Field(
        0.0,
        description="ranks: fixed time of each gradient step (trainer.optimizer.minibatches): the optimizer.",
    )
    micro_seconds: Seconds = Field(
        0.0,
        description="ranks: gathering weights for each micro-batch (trainer.optimizer.max_tokens), while it computes.",
    )
    stages: Positive = Field(1, description="ranks: stages of a pipeline, which fills and empties in each step.")
    pair_seconds: Seconds = Field(
        0.0, description="ranks: time of attention, per pair of tokens of a sequence, on one rank."
    )


class ClusterConfig(Section):
    """The modeled cluster."""

    gpu_memory_gib: float = Field(79.6, gt=0, description="Memory of one GPU, GiB (H100: 79.6).")
    hosts: HostsConfig = Field(default_factory=HostsConfig, description="Machines for desktops.")
    env: EnvConfig = Field(default_factory=EnvConfig, description="Latencies of desktops.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="Inference engines.")
    learner: LearnerConfig = Field(default_factory=LearnerConfig, description="Speed of the trainer.")
    faults: FaultsConfig = Field(default_factory=FaultsConfig, description="Injected faults.")
