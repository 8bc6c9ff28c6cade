"""``estimate``: the memory that a real run needs on each GPU and host, and whether it fits.

It needs neither machines nor weights: shapes come from the checkpoint's ``config.json``, or are the published ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.memory import BYTES, GIB, REPLY_TOKENS, EngineMemory, LearnerMemory, engine_memory, learner_memory
from dartsim.lab.model_shapes import OF_FAMILY, ModelShape, read_shape
from dartsim.real.engines.options import HERE, engine_places

TASK_TOKENS = 500
"""About the system message and instruction of a prompt (DART's first prompts: 3,036 tokens, 2,691 of them image)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """A GPU, and the bytes of each process on it."""

    host: str
    number: int
    holds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory that a configuration needs.

    Attributes:
        shape: Of the model.
        shape_source: Origin of the shape.
        screen_tokens: Tokens of one screenshot.
        prompt_tokens: Tokens of the longest prompt.
        gpu_bytes: Memory of one GPU.
        engine: One GPU of an engine; None without engines on GPUs.
        learner: One rank; None without ranks on GPUs.
        gpus: All used GPUs.
        host_bytes: Memory of this machine at the start.
        disk_bytes: Exported weights and checkpoints, on the disk of ``trainer.fsdp.folder``.
        notes: Warnings.
    """

    shape: ModelShape
    shape_source: str
    screen_tokens: int
    prompt_tokens: int
    gpu_bytes: int
    engine: EngineMemory | None
    learner: LearnerMemory | None
    gpus: tuple[GpuLoad, ...]
    host_bytes: int
    disk_bytes: int
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, memory in GiB."""
        return {
            "model": self.shape.name,
            "shape_source": self.shape_source,
            "parameters": self.shape.parameters,
            "screen_tokens": self.screen_tokens,
            "prompt_tokens": self.prompt_tokens,
            "gpu_gib": _gib(self.gpu_bytes),
            "engine": _engine_json(self.engine, self.prompt_tokens),
            "learner": None if self.learner is None else _learner_json(self.learner),
            "gpus": [
                {"host": gpu.host, "gpu": gpu.number, "holds_gib": {name: _gib(x) for name, x in gpu.holds.items()}}
                for gpu in self.gpus
            ],
            "host_gib_at_start": _gib(self.host_bytes),
            "disk_gib": _gib(self.disk_bytes),
            "notes": list(self.notes),
        }


def estimate(config: Config) -> Estimate | None:
    """Estimate the memory of a run with a real model; None if it is modeled, or its model is the tiny one.

    Raises:
        ConfigError: If processes do not fit on their GPUs, or a folder contains another kind of model.
    """
    if config.policy.model is None or config.backend.virtual:
        return None
    shape, source = _shape(config, Path(config.policy.model))
    screen = _screen(config)
    policy = config.policy
    tokens = policy.max_images * shape.image_tokens(*screen) + policy.max_texts * REPLY_TOKENS + TASK_TOKENS
    _refuse_short(config, tokens)
    gpu_bytes = int(config.cluster.gpu_memory_gib * GIB)
    engine = _engine(config, shape, screen, gpu_bytes)
    learner = _learner(config, shape, screen, tokens)
    gpus = _placed(config, engine, learner)
    _refuse_full(config, gpus, gpu_bytes, engine)
    return Estimate(
        shape=shape,
        shape_source=source,
        screen_tokens=shape.image_tokens(*screen),
        prompt_tokens=tokens,
        gpu_bytes=gpu_bytes,
        engine=engine,
        learner=learner,
        gpus=gpus,
        host_bytes=_host_bytes(config, shape, learner),
        disk_bytes=_disk_bytes(config, shape),
        notes=tuple(_notes(config, engine, tokens)),
    )


# ---- processes


def _shape(config: Config, folder: Path) -> tuple[ModelShape, str]:
    if (folder / "config.json").is_file():
        return read_shape(folder), str(folder / "config.json")
    shape = OF_FAMILY[config.policy.family]
    return shape, f"{shape.name} as published, because {str(folder)!r} is not there"


def _screen(config: Config) -> tuple[int, int]:
    if config.backend.boots and config.policy.grammar == "ui_tars":
        return config.desktop.width, config.desktop.height
    return config.policy.screen, config.policy.screen


def _on_gpus(config: Config) -> tuple[bool, bool]:
    """Return whether engines, and whether ranks, use GPUs."""
    backend = config.backend
    return (
        backend.workers == "vllm" and config.vllm.device == "cuda",
        backend.learner == "fsdp" and config.trainer.fsdp.device != "cpu",
    )


def _engine(config: Config, shape: ModelShape, screen: tuple[int, int], gpu_bytes: int) -> EngineMemory | None:
    if not _on_gpus(config)[0]:
        return None
    vllm = config.vllm
    return engine_memory(
        shape,
        gpu_bytes=gpu_bytes,
        share=vllm.gpu_memory_share,
        max_model_len=vllm.max_model_len,
        max_num_seqs=vllm.max_num_seqs,
        max_images=config.policy.max_images,
        screen=screen,
        value_bytes=BYTES.get(vllm.dtype, 2),
        tensor_parallel=vllm.tensor_parallel,
    )


def _learner(config: Config, shape: ModelShape, screen: tuple[int, int], prompt: int) -> LearnerMemory | None:
    if not _on_gpus(config)[1]:
        return None
    trainer = config.trainer
    tokens = max(trainer.optimizer.max_tokens, prompt)
    return learner_memory(
        shape,
        ranks=trainer.fsdp.ranks,
        tokens=tokens,
        images=max(1, tokens // prompt) * config.policy.max_images,
        replies=config.curation.attempts.group_size,
        screen=screen,
        dtype=config.policy.dtype,
        compute=trainer.fsdp.precision,
        checkpointing=trainer.fsdp.checkpointing,
        reference=trainer.objective.kl_coefficient > 0.0,
        lora_rank=trainer.lora.rank,
    )


def _placed(config: Config, engine: EngineMemory | None, learner: LearnerMemory | None) -> tuple[GpuLoad, ...]:
    found: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    if engine is not None:
        for number, (host, gpus) in enumerate(engine_places(config)):
            for gpu in gpus:
                found[host, gpu][f"engine-{number}"] = engine.budget
    if learner is not None:
        fsdp = config.trainer.fsdp
        for rank in range(fsdp.ranks):
            node, place = divmod(rank, fsdp.ranks // fsdp.nodes)
            gpu = fsdp.gpus[place] if fsdp.gpus else place
            found[HERE if node == 0 else node_name(node), gpu][f"rank-{rank}"] = learner.total
    return tuple(GpuLoad(host=host, number=gpu, holds=holds) for (host, gpu), holds in sorted(found.items()))


def node_name(node: int) -> str:
    """Return the name of a machine of ranks; node 0 is this machine."""
    return f"learner node {node}"


# ---- does it fit


def _refuse_short(config: Config, prompt: int) -> None:
    needed = prompt + config.policy.max_new_tokens
    if config.backend.workers == "vllm" and needed > config.vllm.max_model_len:
        raise ConfigError(
            f"a prompt of {config.policy.max_images} screenshots and {config.policy.max_texts} replies has about "
            f"{prompt} tokens, and a reply up to {config.policy.max_new_tokens}, but vllm.max_model_len = "
            f"{config.vllm.max_model_len}; raise it to {needed} or more, or lower policy.max_images or max_texts"
        )


def _refuse_full(config: Config, gpus: Sequence[GpuLoad], gpu_bytes: int, engine: EngineMemory | None) -> None:
    if engine is not None and engine.kv_tokens < config.vllm.max_model_len:
        raise ConfigError(
            f"of an engine's {_gib(engine.budget)} GiB of a GPU (vllm.gpu_memory_share), weights take "
            f"{_gib(engine.weights)} and computing {_gib(engine.working)}: keys and values of {engine.kv_tokens} "
            "tokens fit, fewer than one request of vllm.max_model_len = "
            f"{config.vllm.max_model_len}, and vLLM would not start. Raise vllm.gpu_memory_share or tensor_parallel, "
            "or lower max_model_len"
        )
    for gpu in gpus:
        total = sum(gpu.holds.values())
        if total > gpu_bytes:
            parts = " and ".join(f"{name} with {_gib(size)} GiB" for name, size in gpu.holds.items())
            raise ConfigError(
                f"GPU {gpu.number} of {gpu.host} would hold {parts}: {_gib(total)} GiB of {_gib(gpu_bytes)} "
                "(cluster.gpu_memory_gib). Use other GPUs (vllm.gpus, trainer.fsdp.gpus), more ranks, LoRA, "
                "trainer.fsdp.checkpointing, or lower trainer.optimizer.max_tokens, policy.max_images or "
                "vllm.gpu_memory_share"
            )


def _host_bytes(config: Config, shape: ModelShape, learner: LearnerMemory | None) -> int:
    """Return the host memory at the start: two copies of the model in this process, and those of each rank."""
    own = 2 * shape.parameters * BYTES[config.policy.dtype]
    return own + (0 if learner is None else config.trainer.fsdp.ranks // config.trainer.fsdp.nodes * learner.host)


def _disk_bytes(config: Config, shape: ModelShape) -> int:
    """Return the bytes of exported weights, and of two checkpoints: the last one and the next one."""
    if config.backend.learner != "fsdp":
        return 0
    held = BYTES[config.policy.dtype]
    rank = config.trainer.lora.rank
    trained = shape.text.lora_parameters(rank) if rank else shape.parameters
    num_exports = config.trainer.fsdp.keep_weights + 2  # with the initial and the next ones
    return num_exports * shape.parameters * held + 2 * 3 * trained * held


def _notes(config: Config, engine: EngineMemory | None, prompt: int) -> list[str]:
    notes = []
    if engine is not None:
        live = config.rollout.num_envs / config.rollout.num_workers
        whole = engine.kv_tokens // (prompt + config.policy.max_new_tokens)
        if whole < min(live, config.vllm.max_num_seqs):
            notes.append(
                f"an engine holds {whole} requests with the longest prompt, for {live:.0f} desktops: others wait"
            )
        if engine.wanted > engine.kv:
            notes.append("max_num_seqs x max_model_len exceeds the cache: requests wait when it is full")
    if config.policy.dtype == "bfloat16" and config.trainer.lora.rank is None and config.backend.learner != "sim":
        notes.append("all weights are trained in bfloat16, which rounds steps of 1e-6 to 0; set policy.dtype")
    policy = config.policy
    prompted_as_ui_tars = policy.instructions is None and policy.prompt != "plain"
    if policy.grammar == "ui_tars" and policy.family == "qwen3_vl" and prompted_as_ui_tars:
        notes.append(f"the prompt {policy.prompt} is UI-TARS-1.5's and names no unit: set policy.prompt = 'plain'")
    return notes


# ---- as plain values


def _gib(size: int) -> float:
    return round(size / GIB, 1)


def _engine_json(engine: EngineMemory | None, prompt: int) -> dict[str, Any] | None:
    if engine is None:
        return None
    return {
        "weights_gib": _gib(engine.weights),
        "working_gib": _gib(engine.working),
        "kv_gib": _gib(engine.kv),
        "kv_bytes_per_token": engine.kv_bytes_per_token,
        "kv_tokens": engine.kv_tokens,
        "wanted_kv_gib": _gib(engine.wanted),
        "requests_of_longest_prompt": engine.kv_tokens // prompt,
        "budget_gib": _gib(engine.budget),
    }


def _learner_json(learner: LearnerMemory) -> dict[str, float]:
    parts = {f"{name}_gib": _gib(size) for name, size in asdict(learner).items() if name != "host"}
    return {**parts, "total_gib": _gib(learner.total)}
