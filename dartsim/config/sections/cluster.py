"""The modeled cluster: machines, desktops, engines, the trainer's speed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dartsim.config.sections.faults import FaultsConfig
from dartsim.core.section import Positive, Seconds, Section


class HostsConfig(Section):
    """The machines that desktops run on."""

    count: Positive = Field(4, description="Number of machines.")
    cores: float = Field(32.0, gt=0, description="Cores of each machine.")
    slow_count: int = Field(0, ge=0, description="Number of slow machines among them, with slow_cores cores each.")
    slow_cores: float = Field(1.0, gt=0, description="Cores of a slow machine.")
    memory_gib: float = Field(128.0, gt=0, description="Memory of each machine, GiB.")
    concurrent_starts: Positive = Field(4, description="Desktops that one machine boots at the same time.")


class EngineConfig(Section):
    """The inference engine of each worker."""

    model: Literal["fluid", "batch", "shared"] = Field(
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
    control_seconds: Seconds = Field(
        0.0,
        description="Time of the control process per request, on a single core that all requests share (real OSWorld "
        "at 1080p: 0.028, `python -m experiments.driver`).",
    )
    gpu: str = Field(
        "h100_fp8", description="GPU profile, see `dartsim config --list profiles` (DART: quantized H100)."
    )
    overhead_seconds: Seconds = Field(1.5, description="Network, base64 and image preprocessing of a request (1 to 3).")
    prepare_seconds: Seconds = Field(
        0.0, description="Start of a weight load, before reload_seconds: running requests continue, none arrive."
    )
    reload_seconds: Seconds = Field(300.0, description="Time to load weights from disk on one slice (100 to 300).")
    transfer_seconds: Seconds | None = Field(
        None, description="Time of loading weights without a restart (modes drain and keep); none: reload_seconds."
    )
    prompt: Literal["gui", "text"] = Field(
        "gui", description="Prompts: screenshots and earlier replies (gui), or one short text (text)."
    )
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

    fixed_seconds: Seconds = Field(270.0, description="Fixed time of an update, with saving (whole: 900 to 1,300 s).")
    kilotoken_seconds: Seconds = Field(
        0.086,
        description="Additional time for each 1,000 tokens that an update computes. Fitted to 21.2 min per version of "
        "DART: 913 turns, 12,800 tokens each, one sequence per turn.",
    )
    gpus: Positive = Field(8, description="GPUs of the trainer; used for costs and `dartsim plan` only (DART: 8 H100).")


class ClusterConfig(Section):
    """The modeled cluster."""

    gpu_memory_gib: float = Field(79.6, gt=0, description="Memory of one GPU, GiB (H100: 79.6).")
    hosts: HostsConfig = Field(default_factory=HostsConfig, description="Machines for desktops.")
    env: EnvConfig = Field(default_factory=EnvConfig, description="Latencies of desktops.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="Inference engines.")
    learner: LearnerConfig = Field(default_factory=LearnerConfig, description="Speed of the trainer.")
    faults: FaultsConfig = Field(default_factory=FaultsConfig, description="Injected faults.")
