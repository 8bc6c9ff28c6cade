"""Real engines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Deadline, Positive, Section

VARIABLE = "DARTSIM_VLLM_PYTHON"
"""Names the interpreter of the environment that has vLLM, where the configuration does not."""


class VllmConfig(Section):
    """vLLM engines, one a worker."""

    python: str | None = Field(
        None, description="Interpreter of the environment that has vLLM; none: DARTSIM_VLLM_PYTHON."
    )
    addresses: list[str] = Field(
        default_factory=list, description="URLs of engines that run already; none: they are started."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="What engines compute on.")
    gpus: list[int] = Field(default_factory=list, description="GPUs that engines are put on, in order.")
    tensor_parallel: Positive = Field(1, description="GPUs that one engine is spread over.")
    gpu_memory_share: float = Field(
        0.9, gt=0.0, le=1.0, description="Share of a GPU's memory that an engine takes; less beside a learner."
    )
    dtype: str = Field("float32", description="Of the weights in the engine; the learner's, for equal probabilities.")
    transfer: Literal["folder", "file"] = Field(
        "file", description="How weights get in: reloaded from a folder, or through vLLM's weight-transfer routes."
    )
    max_model_len: Positive = Field(2048, description="Longest prompt and reply together, tokens.")
    max_num_seqs: Positive = Field(16, description="Requests computed at once.")
    threads: Positive = Field(
        1,
        description="OpenMP threads of an engine on CPU; more than one costs far more than it brings on shared cores.",
    )
    start_seconds: Deadline = Field(
        600.0, description="Time until an engine must be healthy: a 7B model takes minutes from a cold disk."
    )
    concurrent_starts: Positive = Field(4, description="Engines that are started at a time; the others wait.")
    request_seconds: Deadline = Field(300.0, description="Longest time of one request.")
