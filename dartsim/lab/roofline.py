"""Times of engines, updates and weight transfers from a GPU's data sheet and a model's sizes.

Rooflines: an operation takes the longer of computing and moving bytes, at a typical share of the GPU's peak. One
factor, ``efficiency``, multiplies all these shares; it is 1 for software of typical quality. Then matrix products of
training reach 40 % of the peak (recomputation counts as work), prefill 55 %, reading memory 65 %, attention 35 %, and
collectives 60 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dartsim.core.errors import ConfigError

TRAIN_SHARE, PREFILL_SHARE, READ_SHARE, ATTENTION_SHARE, COLLECTIVE_SHARE = 0.40, 0.55, 0.65, 0.35, 0.60
LAYER_SECONDS = 12e-6
"""Launches and small kernels of one layer in one iteration of an engine."""
REDUCE_SECONDS, FAR_REDUCE_SECONDS = 12e-6, 45e-6
"""One all-reduce of a few tokens among GPUs of a node, and among nodes; each layer has two."""
STEP_SECONDS = 1.0
"""Host's share of a gradient step: data, norms, logging."""
LORA_SHARE = 0.01
"""Trained weights with adapters, over all weights."""
RESERVE_SHARE = 0.1
"""Share of a GPU's memory that an engine leaves free."""
WORKING_BYTES = 4e9
"""Activations and graphs of an engine on each GPU."""
WAIT_SECONDS = 1.0
"""Pausing engines and agreeing on a transfer."""
CACHE_SECONDS = 3.0
"""Freeing an engine's cache and making it again."""
HOST_RATE = 20e9
"""Bytes/s between a GPU and its host."""


@dataclass(frozen=True, slots=True)
class GpuSheet:
    """A GPU's data sheet: dense 16-bit FLOP/s, bytes/s of memory, of the links in a node and of its network; bytes."""

    flops: float
    memory_rate: float
    memory: float
    node_rate: float
    network_rate: float


SHEETS: Mapping[str, GpuSheet] = {
    "A100": GpuSheet(312e12, 2.04e12, 80e9, 300e9, 25e9),
    "H20": GpuSheet(148e12, 4.0e12, 96e9, 450e9, 25e9),
    "H100": GpuSheet(989e12, 3.35e12, 80e9, 450e9, 50e9),
    "H200": GpuSheet(989e12, 4.8e12, 141e9, 450e9, 50e9),
    "H800": GpuSheet(989e12, 3.35e12, 80e9, 200e9, 50e9),
    "Ascend-A3": GpuSheet(752e12, 3.2e12, 128e9, 196e9, 25e9),
}
"""Vendors' data sheets; Ascend-A3 is one 910C package."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's sizes.

    Attributes:
        parameters: All weights.
        active: Weights that compute one token.
        layers: Number of layers.
        width: Heads times their size, of queries; the cost of attention is proportional to it.
        kv_bytes: Keys and values of one token in all layers, 16 bit, bytes.
        expert_share: Share of the routed experts that compute one token; 1 without experts.
    """

    parameters: float
    active: float
    layers: int
    width: int
    kv_bytes: float
    expert_share: float = 1.0


MODELS: Mapping[str, ModelSize] = {
    "Qwen3-0.6B": ModelSize(0.6e9, 0.6e9, 28, 2048, 114_688),
    "Qwen3-4B": ModelSize(4.02e9, 4.02e9, 36, 4096, 147_456),
    "Qwen2.5-7B": ModelSize(7.62e9, 7.07e9, 28, 3584, 57_344),
    "Qwen3-8B": ModelSize(8.19e9, 7.57e9, 36, 4096, 147_456),
    "Qwen2.5-32B": ModelSize(32.8e9, 32.0e9, 64, 5120, 262_144),
    "Qwen2.5-72B": ModelSize(72.7e9, 71.5e9, 80, 8192, 327_680),
    "Qwen3-30B-A3B": ModelSize(30.5e9, 3.3e9, 48, 4096, 98_304, 8 / 128),
    "Qwen3-235B-A22B": ModelSize(235e9, 22e9, 94, 8192, 192_512, 8 / 128),
    "DeepSeek-V3": ModelSize(671e9, 37e9, 61, 20_480, 70_272, 8 / 256),
}
"""Sizes from the published ``config.json`` of each model."""


def engine_settings(
    gpu: GpuSheet,
    model: ModelSize,
    *,
    gpus: int,
    efficiency: float,
    node_gpus: int = 8,
    weight_bytes: float = 2.0,
    memory_share: float = 1.0,
    max_num_seqs: int = 256,
) -> dict[str, Any]:
    """Return ``cluster.engine.roofline`` of an engine of so many GPUs.

    ``memory_share``: the part of each GPU's memory that it has; a trainer on the same GPU has the rest.

    Raises:
        ConfigError: If the model does not fit.
    """
    rate = gpus * gpu.memory_rate * min(0.95, READ_SHARE * efficiency)
    flops = gpus * gpu.flops * efficiency
    reduce = 0.0 if gpus == 1 else REDUCE_SECONDS if gpus <= node_gpus else FAR_REDUCE_SECONDS
    experts = _expert_parameters(model)
    cache = gpus * (gpu.memory * (1.0 - RESERVE_SHARE) * memory_share - WORKING_BYTES) - model.parameters * weight_bytes
    if cache < model.kv_bytes:
        raise ConfigError(
            f"the model's {model.parameters * weight_bytes / 1e9:.0f} GB do not fit on an engine of {gpus} GPUs of "
            f"{gpu.memory / 1e9:.0f} GB, of which it has {memory_share:.0%}; raise machines.engine_gpus"
        )
    return {
        "iteration_seconds": (model.parameters - experts) * weight_bytes / rate
        + model.layers * (LAYER_SECONDS + 2 * reduce) / efficiency,
        "expert_seconds": experts * weight_bytes / rate,
        "expert_share": model.expert_share if experts else 0.0,
        "token_seconds": 2.0 * model.active / (flops * PREFILL_SHARE),
        "kv_seconds": model.kv_bytes / rate,
        "pair_seconds": 4.0 * model.width * model.layers / (flops * ATTENTION_SHARE),
        "kv_tokens": int(cache / model.kv_bytes),
        "max_num_seqs": max_num_seqs,
    }


def _expert_parameters(model: ModelSize) -> float:
    """Return the weights of all routed experts: what is not active, and the active part of it."""
    return (model.parameters - model.active) / (1.0 - model.expert_share) if model.expert_share < 1.0 else 0.0


def update_settings(
    gpu: GpuSheet,
    model: ModelSize,
    *,
    gpus: int,
    ranks: int,
    efficiency: float,
    step_cost: float = 1.0,
    trains: Literal["full", "lora"] = "full",
    backend: Literal["fsdp", "megatron"] = "fsdp",
    recomputes: bool = True,
    forwards: int = 0,
) -> dict[str, Any]:
    """Return settings of ``cluster.learner`` for GPUs in so many groups (``ranks``) that share a model's sequences.

    ``forwards``: additional passes without gradients, such as old and reference log-probabilities. ``step_cost``
    multiplies what a gradient step and a micro-batch cost besides computing.
    """
    passes = (2 if trains == "full" else 1) + 1 + recomputes + forwards  # backward, forward
    scores = 3 + recomputes + forwards  # of attention
    flops = gpus / ranks * gpu.flops * efficiency
    trained = model.parameters if trains == "full" else LORA_SHARE * model.parameters
    step = STEP_SECONDS + 24.0 * trained / gpus / (gpu.memory_rate * READ_SHARE)
    micro = 0.0
    if backend == "megatron":  # each GPU reduces the gradients of its own weights and gathers them, in a step
        step += 6.0 * trained * ranks / gpus / (gpu.network_rate * COLLECTIVE_SHARE) * (ranks > 1)
    elif gpus > 1:  # all nodes gather all weights twice, and reduce gradients in float32
        rate = min(8 * gpu.network_rate, gpu.node_rate) if gpus > 8 else gpu.node_rate
        micro = (4.0 * model.parameters + 4.0 * trained) / (rate * COLLECTIVE_SHARE)
    return {
        "gpus": gpus,
        "ranks": ranks,
        "kilotoken_seconds": 1000.0 * 2.0 * passes * model.active / (flops * TRAIN_SHARE) / ranks,
        "pair_seconds": scores * 4.0 * model.width * model.layers / (flops * ATTENTION_SHARE),
        "step_seconds": step_cost * step,
        "micro_seconds": step_cost * micro,
    }


def sync_seconds(
    model: ModelSize,
    path: Literal["nccl", "files", "ipc"],
    *,
    gpu: GpuSheet,
    inside: bool,
    gpus: int,
    cost: float = 1.0,
) -> float:
    """Return how long the weights take from a trainer of so many GPUs into all engines.

    - nccl: one rank broadcasts bucket after bucket, gathered before, at a tenth of the link's rate.
    - files: written and then read, each at 2 GB/s a node.
    - ipc: engines on the trainer's own GPUs; each gathers its shard.

    ``inside``: whether engines and trainer are in one node. ``cost`` multiplies the time.
    """
    size = 2.0 * model.parameters
    rates = {
        "nccl": 0.1 * (gpu.node_rate if inside else gpu.network_rate),
        "files": 1e9 * max(1.0, gpus / 8),
        "ipc": 0.1 * gpu.node_rate * max(1.0, gpus / 8),
    }
    return cost * (WAIT_SECONDS + size / rates[path])


def switch_seconds(model: ModelSize, *, gpus: int, cost: float = 1.0) -> float:
    """Return how long colocated engines and trainer take to give their GPUs to each other and back.

    Weights, gradients and moments of the trainer, 16 bytes each, leave for the host's memory and return; engines free
    their cache and make it again. ``cost`` multiplies the time.
    """
    return cost * (CACHE_SECONDS + 2 * 16.0 * model.parameters / gpus / HOST_RATE)
