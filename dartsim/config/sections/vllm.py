"""Real engines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Deadline, Positive, Section


class VllmConfig(Section):
    """vLLM engines, one a worker."""

    python: str | None = Field(None, description="Python of the environment with vLLM; none: DARTSIM_VLLM_PYTHON.")
    addresses: list[str] = Field(
        default_factory=list, description="URLs of running engines; none: engines are started."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Device of the engines.")
    gpus: list[int] = Field(default_factory=list, description="GPUs that engines are placed on, in order.")
    tensor_parallel: Positive = Field(1, description="GPUs per engine.")
    gpu_memory_share: float = Field(
        0.9, gt=0.0, le=1.0, description="Share of a GPU's memory that an engine uses; lower it beside a learner."
    )
    dtype: str = Field("float32", description="Type of the engine's weights; the learner's gives equal probabilities.")
    max_model_len: Positive = Field(2048, description="Longest prompt and reply together, tokens.")
    max_num_seqs: Positive = Field(16, description="Requests computed at the same time.")
    kv_cache_dtype: Literal["auto", "fp8", "fp8_e4m3", "fp8_e5m2"] = Field(
        "auto",
        description="Of keys and values in the cache; auto: as the weights. FP8 holds twice the prompts, and moves "
        "log-probabilities away from the learner's (learner/mismatch_mean).",
    )
    quantization: Literal["none", "fp8"] = Field(
        "none",
        description="FP8: an engine quantizes the weights of linear layers as it loads them: half the memory, and the "
        "same caution. Its norms and embeddings are still compared after each load.",
    )
    flags: list[str] = Field(
        default_factory=list, description="More arguments of an engine's command line, in vLLM's own words."
    )
    start_seconds: Deadline = Field(
        600.0, description="Time limit for starting an engine: a 7B model takes minutes from a cold disk."
    )
    request_seconds: Deadline = Field(300.0, description="Time limit of one request.")
