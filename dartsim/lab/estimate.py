"""``estimate``: the memory that a real run needs on each GPU and host, and whether it fits.

It needs neither machines nor weights: shapes come from the checkpoint's ``config.json``, or are the published ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.config.sections.trainer import TrainerConfig
from dartsim.core.errors import ConfigError
from dartsim.lab.host_needs import DiskNeeds, HostNeeds, disk_needs, host_needs, ranks_per_node
from dartsim.lab.memory import BYTES, GIB, REPLY_TOKENS, EngineMemory, LearnerMemory, engine_memory, learner_memory
from dartsim.lab.model_shapes import OF_FAMILY, ModelShape, read_shape
from dartsim.real.engines.options import HERE, engine_places, serves_adapters

TASK_TOKENS = 500
"""About the system message and instruction of a prompt (DART's first prompts: 3,036 tokens, 2,691 of them image)."""
MESSAGE_TOKENS = 8
"""Marks around a screenshot or a reply: its role, its begin and end."""
LORA_RANK = 32
"""Rank of the LoRA that is named where all weights do not fit."""
MOST_RANKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """A GPU, and the bytes of each process on it."""

    host: str
    number: int
    holds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory that a configuration needs."""

    shape: ModelShape
    shape_source: str
    screen_tokens: int
    prompt_tokens: int
    longest_tokens: int
    gpu_bytes: int
    engine: EngineMemory | None
    learner: LearnerMemory | None
    gpus: tuple[GpuLoad, ...]
    host: HostNeeds
    disk: DiskNeeds
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.shape.name,
            "shape_source": self.shape_source,
            "parameters": self.shape.parameters,
            "screen_tokens": self.screen_tokens,
            "prompt_tokens": self.prompt_tokens,
            "longest_tokens": self.longest_tokens,
            "gpu_gib": _gib(self.gpu_bytes),
            "engine": _engine_json(self.engine, self.prompt_tokens),
            "learner": None if self.learner is None else _learner_json(self.learner),
            "gpus": [
                {"host": gpu.host, "gpu": gpu.number, "holds_gib": {name: _gib(x) for name, x in gpu.holds.items()}}
                for gpu in self.gpus
            ],
            "host_gib_at_start": _gib(self.host.start),
            "host_gib_in_update": _gib(self.host.update),
            "disk_gib": {
                **{name: _gib(size) for name, size in asdict(self.disk).items()},
                "total": _gib(self.disk.total),
            },
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
    replies = min(policy.max_texts, config.rollout.max_turns - 1)
    tokens = policy.max_images * shape.image_tokens(*screen) + replies * REPLY_TOKENS + TASK_TOKENS
    longest = tokens + replies * (policy.max_new_tokens - REPLY_TOKENS) + policy.max_new_tokens
    longest += (policy.max_images + replies) * MESSAGE_TOKENS
    _refuse_short(config, longest)
    gpu_bytes = int(config.cluster.gpu_memory_gib * GIB)
    engine = _engine(config, shape, screen, gpu_bytes)
    learner = _learner(config, shape, screen, longest)
    gpus = _placed(config, engine, learner)
    _refuse_small_cache(config, engine)
    _refuse_full(config, gpus, gpu_bytes, lambda changed: _learner(changed, shape, screen, longest))
    return Estimate(
        shape=shape,
        shape_source=source,
        screen_tokens=shape.image_tokens(*screen),
        prompt_tokens=tokens,
        longest_tokens=longest,
        gpu_bytes=gpu_bytes,
        engine=engine,
        learner=learner,
        gpus=gpus,
        host=host_needs(config, shape, learner, screen, tokens),
        disk=disk_needs(config, shape, screen),
        notes=tuple(_notes(config, engine, tokens)),
    )


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
        weight_bytes=None if vllm.quantization == "none" else 1,
        kv_value_bytes=None if vllm.kv_cache_dtype == "auto" else 1,
        tensor_parallel=vllm.tensor_parallel,
        lora_rank=config.trainer.lora.rank if serves_adapters(config) else None,
    )


def _learner(config: Config, shape: ModelShape, screen: tuple[int, int], longest: int) -> LearnerMemory | None:
    """Return the memory of a rank, whichever takes more: the longest turn alone, or first turns packed together."""
    if not _on_gpus(config)[1]:
        return None
    trainer = config.trainer
    packed = trainer.optimizer.max_tokens
    first_turns = packed // (shape.image_tokens(*screen) + TASK_TOKENS)
    sizes = [(longest, config.policy.max_images), (packed, max(first_turns, 1))]
    memories = [
        learner_memory(
            shape,
            ranks=trainer.fsdp.ranks,
            tokens=tokens,
            images=images,
            replies=max(config.curation.attempts.group_size, images),
            screen=screen,
            dtype=config.policy.dtype,
            compute=trainer.fsdp.precision,
            checkpointing=trainer.fsdp.checkpointing,
            reference=trainer.objective.kl_coefficient > 0.0,
            lora_rank=trainer.lora.rank,
        )
        for tokens, images in sizes
    ]
    return max(memories, key=lambda memory: memory.total)


def _placed(config: Config, engine: EngineMemory | None, learner: LearnerMemory | None) -> tuple[GpuLoad, ...]:
    holds_by_gpu: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    if engine is not None:
        for number, (host, gpus) in enumerate(engine_places(config)):
            for gpu in gpus:
                holds_by_gpu[host, gpu][f"engine-{number}"] = engine.budget
    if learner is not None:
        fsdp = config.trainer.fsdp
        for rank in range(fsdp.ranks):
            node, place = divmod(rank, ranks_per_node(config))
            gpu = fsdp.gpus[place] if fsdp.gpus else place
            host = HERE if config.ray.address is None else f"learner node {node}"
            holds_by_gpu[host, gpu][f"rank-{rank}"] = learner.total
    return tuple(GpuLoad(host=host, number=gpu, holds=holds) for (host, gpu), holds in sorted(holds_by_gpu.items()))


def _refuse_short(config: Config, longest: int) -> None:
    policy = config.policy
    if config.backend.workers == "vllm" and longest > config.vllm.max_model_len:
        raise ConfigError(
            f"a late prompt of {policy.max_images} screenshots and replies of policy.max_new_tokens = "
            f"{policy.max_new_tokens} has, with its own reply, up to {longest} tokens, but vllm.max_model_len = "
            f"{config.vllm.max_model_len}; raise it to {longest} or more, or lower policy.max_images, max_texts or "
            "max_new_tokens"
        )


def _refuse_small_cache(config: Config, engine: EngineMemory | None) -> None:
    if engine is not None and engine.kv_tokens < config.vllm.max_model_len:
        raise ConfigError(
            f"of an engine's {_gib(engine.budget)} GiB of a GPU (vllm.gpu_memory_share), weights take "
            f"{_gib(engine.weights)} and computing {_gib(engine.working)}: keys and values of {engine.kv_tokens} "
            "tokens fit, fewer than one request of vllm.max_model_len = "
            f"{config.vllm.max_model_len}, and vLLM would not start. Raise vllm.gpu_memory_share or tensor_parallel, "
            "or lower max_model_len"
        )


def _refuse_full(
    config: Config, gpus: Sequence[GpuLoad], gpu_bytes: int, learner_of: Callable[[Config], LearnerMemory | None]
) -> None:
    for gpu in gpus:
        total = sum(gpu.holds.values())
        if total > gpu_bytes:
            parts = " and ".join(f"{name} with {_gib(size)} GiB" for name, size in gpu.holds.items())
            ranks = sum(size for name, size in gpu.holds.items() if name.startswith("rank-"))
            fits = _what_fits(config, gpu_bytes, total - ranks, learner_of) if ranks else ""
            raise ConfigError(
                f"GPU {gpu.number} of {gpu.host} would hold {parts}: {_gib(total)} GiB of {_gib(gpu_bytes)} "
                f"(cluster.gpu_memory_gib). {fits}Use other GPUs (vllm.gpus, trainer.fsdp.gpus), more ranks, LoRA, "
                "trainer.fsdp.checkpointing, or lower trainer.optimizer.max_tokens, policy.max_images or "
                "vllm.gpu_memory_share"
            )


def _what_fits(
    config: Config, gpu_bytes: int, others: int, learner_of: Callable[[Config], LearnerMemory | None]
) -> str:
    """Return sentences that name changes after which ranks fit on GPUs with ``others`` bytes of other processes."""
    trainer, sentences = config.trainer, []

    def total(changed: TrainerConfig, dtype: str) -> int:
        policy = config.policy.model_copy(update={"dtype": dtype})
        memory = learner_of(config.model_copy(update={"trainer": changed, "policy": policy}))
        return 0 if memory is None else memory.total

    for number in range(trainer.fsdp.ranks + 1, MOST_RANKS + 1):
        needed = total(trainer.replace(fsdp={"ranks": number}), config.policy.dtype)
        if others + needed <= gpu_bytes:
            sentences.append(f"trainer.fsdp.ranks = {number} would fit, with {_gib(needed)} GiB each. ")
            break
    if trainer.lora.rank is None:
        lora = trainer.replace(lora={"rank": LORA_RANK}, objective={"kl_coefficient": 0.0})
        needed = total(lora, "bfloat16")
        if others + needed <= gpu_bytes:
            sentences.append(
                f"So would LoRA (trainer.lora.rank = {LORA_RANK}, trainer.objective.kl_coefficient = 0, policy.dtype = "
                f"bfloat16), with {_gib(needed)} GiB. "
                if sentences
                else f"LoRA would fit (trainer.lora.rank = {LORA_RANK}, trainer.objective.kl_coefficient = 0, "
                f"policy.dtype = bfloat16), with {_gib(needed)} GiB. "
            )
    return "".join(sentences)


def _notes(config: Config, engine: EngineMemory | None, prompt: int) -> list[str]:
    notes = []
    if engine is not None:
        live = config.rollout.num_envs / config.rollout.num_workers
        whole = engine.kv_tokens // (prompt + config.policy.max_new_tokens)
        if whole < min(live, config.vllm.max_num_seqs):
            notes.append(f"an engine holds {whole} full prompts, for {live:.0f} desktops: others wait")
        if engine.wanted > engine.kv:
            notes.append("max_num_seqs x max_model_len exceeds the cache: requests wait when it is full")
    if config.policy.dtype == "bfloat16" and config.trainer.lora.rank is None and config.backend.learner != "sim":
        notes.append(
            "weights trained in bfloat16 have masters in float32, 20 bytes a weight in all; with policy.dtype float32 "
            "and trainer.fsdp.precision = bfloat16 they take 16, and compute alike"
        )
    policy = config.policy
    prompted_as_ui_tars = policy.instructions is None and policy.prompt != "plain"
    if policy.grammar == "ui_tars" and policy.model_family == "qwen3_vl" and prompted_as_ui_tars:
        notes.append(f"the prompt {policy.prompt} is UI-TARS-1.5's and names no unit: set policy.prompt = 'plain'")
    return notes


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
        "requests_of_full_prompt": engine.kv_tokens // prompt,
        "budget_gib": _gib(engine.budget),
    }


def _learner_json(learner: LearnerMemory) -> dict[str, float]:
    parts = {f"{name}_gib": _gib(size) for name, size in asdict(learner).items() if name != "host"}
    return {**parts, "total_gib": _gib(learner.total)}
