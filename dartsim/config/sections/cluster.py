"""The modeled cluster: machines, desktops, engines, the trainer's speed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dartsim.config.sections.faults import FaultsConfig
from dartsim.core.section import Positive, Seconds, Section


class HostsConfig(Section):
    """The machines that desktops run on."""

    count: Positive = Field(4, description="Machines.")
    cores: float = Field(32.0, gt=0, description="Cores of each.")
    slow_count: int = Field(0, ge=0, description="How many of them have slow_cores cores only.")
    slow_cores: float = Field(1.0, gt=0, description="Cores of each of those.")
    memory_gib: float = Field(128.0, gt=0, description="Memory of each, GiB.")
    concurrent_starts: Positive = Field(4, description="Desktops that one machine boots at a time.")


class EngineConfig(Section):
    """The inference engine of each worker."""

    model: Literal["fluid", "batch", "shared"] = Field(
        "fluid",
        description="Continuous batching on a GPU; or, as `dartsim measure` fits them: all that waits as one batch (a "
        "worker in this process), all at once and slower by their number (a server).",
    )
    batch_seconds: Seconds = Field(0.01, description="batch, shared: of a batch, whatever its size.")
    request_seconds: Seconds = Field(0.002, description="batch, shared: of each request in it.")
    batch_spread: dict[str, Any] | float = Field(
        1.0, description="batch, shared: factor of a batch's (a request's) time, a distribution of mean 1."
    )
    batch_memory: float = Field(
        0.0, ge=0.0, lt=1.0, description="batch, shared: how alike successive factors are, if they are quantiles."
    )
    max_batch: Positive = Field(64, description="batch: most requests of a batch.")
    control_seconds: Seconds = Field(
        0.0, description="Of the one process around desktops and pool, a request; all of them share its core."
    )
    gpu: str = Field("h100_fp8", description="GPU profile (DART: quantised H100); see `dartsim profiles`.")
    window: Literal["slide", "block"] = Field("slide", description="How history images are dropped (DART: slide).")
    prefix_cache: bool = Field(True, description="Whether a session's prompt prefix is cached on its last worker.")
    overhead_seconds: Seconds = Field(1.5, description="Hops, base64, image preprocessing a request (range 1-3).")
    prepare_seconds: Seconds = Field(
        0.0, description="Of a weight change before reload_seconds: requests inside go on, and no new ones come."
    )
    reload_seconds: Seconds = Field(300.0, description="Weight change of one slice, from disk (range 100-300).")
    transfer_seconds: Seconds | None = Field(
        None, description="Weight change of one slice without a restart (modes drain, keep); none: reload_seconds."
    )
    prompt: Literal["gui", "text"] = Field(
        "gui", description="Prompts: screenshots and replies of the turns before, or one short text."
    )
    reply_tokens: dict[str, Any] | float | None = Field(
        None, description="Length of a reply, tokens: a distribution or a number; none: DART's measured replies."
    )
    longest_reply_tokens: Positive = Field(28_672, description="Longest reply where reply_tokens is given.")


class EnvConfig(Section):
    """The latencies of desktops."""

    profile: str = Field("dart", description="Named latency profile; see `dartsim profiles`.")
    latency: dict[str, Any] = Field(
        default_factory=dict,
        description="Replaced latencies: start, boot, setup, step, evaluate, teardown = seconds or a distribution.",
    )


class LearnerConfig(Section):
    """The trainer's speed."""

    fixed_seconds: Seconds = Field(270.0, description="Of an update, with saving (update range 900-1,300 s).")
    turn_seconds: Seconds = Field(1.1, description="Of a turn trained on (from 21.2 min a version).")
    gpus: Positive = Field(
        8, description="GPUs behind these times (DART: 8 H100); only costs and `dartsim plan` count them."
    )


class ClusterConfig(Section):
    """The modeled cluster."""

    gpu_memory_gib: float = Field(79.6, gt=0, description="Memory of one GPU, GiB, in --dry-run (an H100: 79.6).")
    hosts: HostsConfig = Field(default_factory=HostsConfig, description="Machines for desktops.")
    env: EnvConfig = Field(default_factory=EnvConfig, description="Desktop latencies.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="Inference engines.")
    learner: LearnerConfig = Field(default_factory=LearnerConfig, description="Trainer.")
    faults: FaultsConfig = Field(default_factory=FaultsConfig, description="Faults.")
