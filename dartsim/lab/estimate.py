"""``estimate``: the memory that a real run needs on each GPU and host, and whether it fits.

It needs neither machines nor weights: shapes come from the checkpoint's ``config.json``, or from published models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.memory import (
    GIB,
    REPLY_TOKENS,
    EngineMemory,
    HostNeeds,
    LearnerMemory,
    engine_memory,
    host_needs,
    learner_memory,
    ranks_per_node,
)
from dartsim.lab.model_shapes import OF_FAMILY, ModelShape, read_shape
from dartsim.real.engines.options import HERE, engine_places

TASK_TOKENS = 500
"""Approximate system message and instruction of a prompt (DART's first prompts: 3,036 tokens, 2,691 of them image)."""
MESSAGE_TOKENS = 8
"""Markers around a screenshot or a reply: role, begin and end."""


Loads = dict[tuple[str, int], dict[str, int]]
"""The bytes of each process on a GPU, by host and number of the GPU."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Memory that a configuration needs: all figures, JSON-serializable; the GPUs; and the driver's machine."""

    figures: dict[str, Any]
    gpus: Loads
    host: HostNeeds


def estimate(config: Config) -> Estimate | None:
    """Estimate the memory of a run with a real model; None if the model is modeled or the tiny one.

    Raises:
        ConfigError: If processes do not fit on their GPUs, or the folder contains an unsupported model.
    """
    policy = config.policy
    if policy.model is None or config.backend.virtual:
        return None
    shape, source = _shape(config, Path(policy.model))
    screen = (policy.screen, policy.screen)
    if config.backend.boots and policy.sees_whole_screen:
        screen = (config.desktop.width, config.desktop.height)
    screen_tokens = shape.image_tokens(*screen)
    replies = min(policy.max_texts, config.rollout.max_turns - 1)
    tokens = policy.max_images * screen_tokens + replies * REPLY_TOKENS + TASK_TOKENS
    longest = tokens + replies * (policy.max_new_tokens - REPLY_TOKENS) + policy.max_new_tokens
    longest += (policy.max_images + replies) * MESSAGE_TOKENS
    serves = config.backend.workers == "vllm" and config.vllm.device == "cuda"
    trains = config.backend.learner == "fsdp" and config.trainer.fsdp.device != "cpu"
    engine = engine_memory(config, shape, screen) if serves else None
    learner = _learner(config, shape, screen, longest) if trains else None
    gpus, gpu_bytes = _gpu_loads(config, engine, learner), int(config.cluster.gpu_memory_gib * GIB)
    host = host_needs(config, shape, learner, screen, tokens)
    _refuse_short(config, longest)
    _refuse_small_cache(config, engine)
    _refuse_full(gpus, gpu_bytes)
    figures = {
        "model": shape.name,
        "shape_source": source,
        "parameters": shape.parameters,
        "screen_tokens": screen_tokens,
        "prompt_tokens": tokens,
        "longest_tokens": longest,
        "gpu_gib": _gib(gpu_bytes),
        "engine_gib": None if engine is None else _in_gib(asdict(engine)),
        "cache": None if engine is None else {"tokens": engine.kv_tokens, "full_prompts": engine.kv_tokens // tokens},
        "learner_gib": None if learner is None else {**_in_gib(asdict(learner)), "total": _gib(learner.total)},
        "gpus": [{"host": name, "gpu": number, "holds_gib": _in_gib(holds)} for (name, number), holds in gpus.items()],
        "host_memory_gib": {"at_start": _gib(host.start), "later": _gib(host.later)},
        "disk_gib": {"learner": _gib(host.learner), "engines": _gib(host.engines), "run": _gib(host.run)},
        "notes": _notes(config, engine, tokens),
    }
    return Estimate(figures, gpus, host)


def _shape(config: Config, folder: Path) -> tuple[ModelShape, str]:
    if (folder / "config.json").is_file():
        return read_shape(folder), str(folder / "config.json")
    shape = OF_FAMILY[config.policy.family]
    return shape, f"{shape.name} as published, because {str(folder)!r} is not there"


def _learner(config: Config, shape: ModelShape, screen: tuple[int, int], longest: int) -> LearnerMemory:
    """Return the memory of a rank for the larger of two cases: the longest turn alone, or first turns packed."""
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


def _gpu_loads(config: Config, engine: EngineMemory | None, learner: LearnerMemory | None) -> Loads:
    loads: Loads = {}
    if engine is not None:
        for number, (host, gpus) in enumerate(engine_places(config)):
            for gpu in gpus:
                loads.setdefault((host, gpu), {})[f"engine-{number}"] = engine.budget
    if learner is not None:
        fsdp = config.trainer.fsdp
        for rank in range(fsdp.ranks):
            node, place = divmod(rank, ranks_per_node(config))
            gpu = fsdp.gpus[place] if fsdp.gpus else place
            host = HERE if config.ray.address is None else f"learner node {node}"
            loads.setdefault((host, gpu), {})[f"rank-{rank}"] = learner.total
    return dict(sorted(loads.items()))


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


def _refuse_full(gpus: Loads, gpu_bytes: int) -> None:
    for (host, number), holds in gpus.items():
        total = sum(holds.values())
        if total > gpu_bytes:
            parts = " and ".join(f"{name} with {_gib(size)} GiB" for name, size in holds.items())
            raise ConfigError(
                f"GPU {number} of {host} would hold {parts}: {_gib(total)} GiB of {_gib(gpu_bytes)} "
                "(cluster.gpu_memory_gib). Use other GPUs (vllm.gpus, trainer.fsdp.gpus), more ranks "
                "(trainer.fsdp.ranks), LoRA (trainer.lora.rank = 32, trainer.objective.kl_coefficient = 0, "
                "policy.dtype = bfloat16), trainer.fsdp.checkpointing, or lower trainer.optimizer.max_tokens, "
                "policy.max_images or vllm.gpu_memory_share"
            )


def _notes(config: Config, engine: EngineMemory | None, prompt: int) -> list[str]:
    notes = []
    if engine is not None:
        live = config.rollout.num_envs / config.rollout.num_workers
        whole = engine.kv_tokens // (prompt + config.policy.max_new_tokens)
        if whole < min(live, config.vllm.max_num_seqs):
            notes.append(f"an engine holds {whole} full prompts, for {live:.0f} desktops: others wait")
    policy = config.policy
    prompted_as_ui_tars = policy.instructions is None and policy.prompt != "plain"
    if policy.grammar == "ui_tars" and policy.model_family == "qwen3_vl" and prompted_as_ui_tars:
        notes.append(f"the prompt {policy.prompt} is UI-TARS-1.5's and names no unit: set policy.prompt = 'plain'")
    return notes


def _gib(size: int) -> float:
    return round(size / GIB, 1)


def _in_gib(sizes: Mapping[str, int]) -> dict[str, float]:
    return {name: _gib(size) for name, size in sizes.items() if name not in ("kv_bytes_per_token", "host")}
