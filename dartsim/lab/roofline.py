"""Times of engines, updates and weight transfers from a GPU's data sheet and a model's sizes.

Rooflines: operations compute or move bytes at a typical rate. ``efficiency`` multiplies these rates; it is 1 for
software of typical quality. Checked alone: Megatron-Bridge's pre-training of mixtures of experts and prime-rl's trainer
(an update), Moonshot's and NeMo's broadcasts (a sync), and time per token of Llama-3.1-8B (an engine).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dartsim.core.errors import ConfigError

COMPUTE_SHARE, COMPUTE_LIMIT = 0.85, 500e12
"""Share of the peak that matrix products reach, and the most FLOP/s that they reach on a Hopper: their shapes are too
small to feed its tensor cores, and its power is limited. A100 and H20 are below that limit; on H20, FlashAttention-3
(issue 1310) and FlashMLA (issue 30) reach 126 to 130 of 148 TFLOP/s."""
EXPERT_SHARE = 0.4
"""Rate of matrix products of experts, over that of dense ones: they are narrow, and tokens are gathered for each."""
ATTENTION_LIMITS: Mapping[str, tuple[float, float]] = {"fa2": (0.55, 350e12), "fa3": (0.85, 560e12)}
"""Share of the peak that attention reaches, by that issue, and the most FLOP/s, forward and backward, by the papers'
figures on H100: FlashAttention-2 and -3."""
READ_SHARE, COLLECTIVE_SHARE, DISPATCH_SHARE = 0.85, 0.60, 0.80
"""Shares of their peaks that reading memory, collectives, and the exchange of tokens between experts reach."""
ACTIVATION_BYTES = 90
"""Bytes that one pass moves for each token, layer and unit of the hidden size: some 21 vectors and a three times wider
feed-forward layer, 16 bit, written and read once."""
LAYER_SECONDS, EXPERT_LAYER_SECONDS = 12e-6, 30e-6
"""Launches and small kernels of one layer in one iteration of an engine, and what its experts add: routing, sorting,
and the sum of their results."""
REDUCE_SECONDS, FAR_REDUCE_SECONDS = 12e-6, 45e-6
"""One all-reduce of a few tokens among GPUs of a node, and among nodes; each layer has two."""
HOST_SECONDS = 0.5e-3
"""Host's share of an engine's iteration, besides 0.3 ms and 12 us a request that every engine takes."""
STEP_SECONDS = 1.0
"""Host's share of a gradient step: data, norms, logging."""
LORA_SHARE = 0.01
"""Trained weights with adapters, over all weights."""
WORKING_BYTES = 4e9
"""Activations and graphs of an engine on each GPU."""
WAIT_SECONDS = 1.0
"""Pausing engines and agreeing on a transfer."""
CACHE_SECONDS = 3.0
"""Freeing an engine's cache and making it again."""
PAGEABLE_RATE = 5e9
"""Bytes/s between a GPU and its host's pageable memory, to which frameworks offload."""
SEQUENCE_SECONDS = 0.7e-3
"""One process's work for each sequence of an update: advantages, balancing, metrics. A step of verl's takes 0.4 s for
1,024 sequences and 11 s for 8,192 besides its timed phases (fully_async.md, lines 355-362 and 540-566); the second
figure is of rows that the error card holds out."""
COLUMN_BYTES, HANDOVER_RATE = 48, 0.3e9
"""A token of a batch that one process hands to all ranks: six columns of 8 bytes, padding included. Bytes/s at which it
pickles and sends them: 0.15 (NeMo-RL issue 1877) to 0.8 GB/s (verl pull request 3425)."""
FILE_RATE = 2e9
"""Bytes/s of writing weights to files, or of reading them, on a node."""
PACKED_RATE = 60e9
"""Bytes/s of a broadcast in large buffers over all network cards: 36 to 94 GB/s where published."""


@dataclass(frozen=True, slots=True)
class GpuSheet:
    """A GPU's data sheet: dense 16-bit FLOP/s, bytes/s of memory, of the links in a node and of its network; bytes."""

    flops: float
    memory_rate: float
    memory: float
    node_rate: float
    network_rate: float


SHEETS: Mapping[str, GpuSheet] = {
    "A100": GpuSheet(312e12, 2.04e12, 85.9e9, 300e9, 25e9),
    "H20": GpuSheet(148e12, 4.0e12, 102.6e9, 450e9, 25e9),
    "H100": GpuSheet(989e12, 3.35e12, 85.5e9, 450e9, 50e9),
    "H200": GpuSheet(989e12, 4.8e12, 150.8e9, 450e9, 50e9),
    "H800": GpuSheet(989e12, 3.35e12, 85.5e9, 200e9, 50e9),
    "Ascend-A3": GpuSheet(376e12, 1.6e12, 68.7e9, 196e9, 25e9),
}
"""Vendors' data sheets, memory as their tools show it; Ascend-A3 is one of a 910C's two chips, each of which counts
as a device."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's sizes.

    Attributes:
        parameters: All weights.
        active: Weights that compute one token.
        layers: Number of layers.
        width: Heads times their size, of queries; the cost of attention is proportional to it.
        kv_bytes: Keys and values of one token in all layers, 16 bit, bytes.
        hidden: Hidden size.
        expert_share: Share of the routed experts that compute one token; 1 without experts.
        routed: Routed experts that compute one token.
    """

    parameters: float
    active: float
    layers: int
    width: int
    kv_bytes: float
    hidden: int
    expert_share: float = 1.0
    routed: int = 0

    @property
    def expert_parameters(self) -> float:
        """Weights of all routed experts: what is not active, and the active part of it."""
        return (self.parameters - self.active) / (1.0 - self.expert_share) if self.expert_share < 1.0 else 0.0


MODELS: Mapping[str, ModelSize] = {
    "Qwen3-0.6B": ModelSize(0.6e9, 0.6e9, 28, 2048, 114_688, 1024),
    "Qwen3-4B": ModelSize(4.02e9, 4.02e9, 36, 4096, 147_456, 2560),
    "Qwen2.5-7B": ModelSize(7.62e9, 7.07e9, 28, 3584, 57_344, 3584),
    "Qwen3-8B": ModelSize(8.19e9, 7.57e9, 36, 4096, 147_456, 4096),
    "Qwen2.5-32B": ModelSize(32.8e9, 32.0e9, 64, 5120, 262_144, 5120),
    "Qwen2.5-72B": ModelSize(72.7e9, 71.5e9, 80, 8192, 327_680, 8192),
    "Qwen3-30B-A3B": ModelSize(30.5e9, 3.3e9, 48, 4096, 98_304, 2048, 8 / 128, 8),
    "Qwen3-235B-A22B": ModelSize(235e9, 22e9, 94, 8192, 192_512, 4096, 8 / 128, 8),
    "DeepSeek-V3": ModelSize(671e9, 37e9, 61, 20_480, 70_272, 7168, 8 / 256, 8),
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
    memory_share: float = 0.9,
    max_num_seqs: int = 256,
) -> dict[str, Any]:
    """Return ``cluster.engine.roofline`` of an engine of so many GPUs.

    ``memory_share``: the part of each GPU's memory that it uses.

    Raises:
        ConfigError: If the model does not fit.
    """
    rate = gpus * gpu.memory_rate * min(0.95, READ_SHARE * efficiency)
    reduce = 0.0 if gpus == 1 else REDUCE_SECONDS if gpus <= node_gpus else FAR_REDUCE_SECONDS
    experts = model.expert_parameters
    layer = LAYER_SECONDS + EXPERT_LAYER_SECONDS * (experts > 0.0)
    cache = gpus * (gpu.memory * memory_share - WORKING_BYTES) - model.parameters * weight_bytes
    if cache < model.kv_bytes:
        raise ConfigError(
            f"the model's {model.parameters * weight_bytes / 1e9:.0f} GB do not fit on an engine of {gpus} GPUs of "
            f"{gpu.memory / 1e9:.0f} GB, of which it uses {memory_share:.0%}; raise machines.engine_gpus"
        )
    return {
        "iteration_seconds": (model.parameters - experts) * weight_bytes / rate
        + (HOST_SECONDS + model.layers * (layer + 2 * reduce)) / efficiency,
        "expert_seconds": experts * weight_bytes / rate,
        "expert_share": model.expert_share if experts else 0.0,
        "token_seconds": _compute_seconds(gpu, model) / (gpus * efficiency),
        "kv_seconds": model.kv_bytes / rate,
        "pair_seconds": _pair_seconds(gpu, model, "fa3") / (gpus * efficiency),
        "kv_tokens": int(cache / model.kv_bytes),
        "max_num_seqs": max_num_seqs,
    }


def _compute_seconds(gpu: GpuSheet, model: ModelSize) -> float:
    """Return how long one GPU computes one token in one pass, without attention."""
    rate = min(COMPUTE_SHARE * gpu.flops, COMPUTE_LIMIT)
    experts = model.expert_parameters * model.expert_share
    return 2.0 * (model.active - experts + experts / EXPERT_SHARE) / rate


def _pair_seconds(gpu: GpuSheet, model: ModelSize, kernel: str) -> float:
    """Return how long one GPU computes the attention of one pair of tokens in one pass."""
    share, limit = ATTENTION_LIMITS[kernel]
    return 4.0 * model.width * model.layers / min(share * gpu.flops, limit)


def _dispatch_seconds(gpu: GpuSheet, model: ModelSize, gpus: int, node_gpus: int) -> float:
    """Return how long one token travels to experts on so many GPUs and back, in one pass, by its GPU's links.

    Other nodes get it once, and its experts in the node once each.
    """
    size = 2 * 2.0 * model.hidden * model.layers
    near, nodes = min(gpus, node_gpus), -(-gpus // node_gpus)
    inside = model.routed * (1.0 - 1.0 / near) * size / gpu.node_rate
    outside = min(model.routed, nodes) * (1.0 - 1.0 / nodes) * size / gpu.network_rate
    return (inside + outside) / DISPATCH_SHARE


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
    attention: Literal["fa2", "fa3"] = "fa2",
    stages: int = 1,
    shard_gpus: int | None = None,
    expert_gpus: int = 1,
    node_gpus: int = 8,
    recomputes: bool = True,
    forwards: int = 0,
    written: float = 0.0,
) -> dict[str, Any]:
    """Return settings of ``cluster.learner`` for GPUs in so many groups (``ranks``) that share a model's sequences.

    Args:
        gpu: Data sheet.
        model: Sizes.
        gpus: All GPUs.
        ranks: Groups of them.
        efficiency: Multiplies rates of computing.
        step_cost: Multiplies what a gradient step and a micro-batch cost besides computing.
        trains: All weights, or adapters.
        backend: Weights are gathered for each micro-batch (fsdp), or stay on their GPUs (megatron).
        attention: Kernel.
        stages: Stages of a pipeline in each group.
        shard_gpus: GPUs that share one copy of the weights (fsdp); None: all.
        expert_gpus: GPUs among which experts are shared out.
        node_gpus: GPUs of a node.
        recomputes: Whether activations are recomputed.
        forwards: Passes without gradients, such as old and reference log-probabilities.
        written: How often a gradient step writes what it trained to files.
    """
    extra = recomputes + forwards
    passes = (2 if trains == "full" else 1) + 1 + extra  # backward, forward
    scores = 3.5 + extra  # of attention
    token = passes * _compute_seconds(gpu, model) + (2 + extra) * _dispatch_seconds(gpu, model, expert_gpus, node_gpus)
    token += passes * ACTIVATION_BYTES * model.hidden * model.layers / (gpu.memory_rate * READ_SHARE)
    trained = model.parameters if trains == "full" else LORA_SHARE * model.parameters
    step = STEP_SECONDS + 24.0 * trained / gpus / (gpu.memory_rate * READ_SHARE) + written * 2.0 * trained / FILE_RATE
    shards = min(shard_gpus or gpus, gpus)
    micro = 0.0
    if backend == "megatron":  # each GPU reduces the gradients of its own weights and gathers them, in a step
        step += 6.0 * trained * ranks / gpus / (gpu.network_rate * COLLECTIVE_SHARE) * (ranks > 1)
    elif gpus > 1:  # weights are gathered twice and gradients reduced in float32, then once among copies
        rate = min(node_gpus * gpu.network_rate, gpu.node_rate) if shards > node_gpus else gpu.node_rate
        micro = (4.0 * model.parameters + 4.0 * trained) / (rate * COLLECTIVE_SHARE)
        step += 8.0 * trained / shards / (gpu.network_rate * COLLECTIVE_SHARE) * (shards < gpus)
    return {
        "gpus": gpus,
        "ranks": ranks,
        "stages": stages,
        "kilotoken_seconds": 1000.0 * token / (gpus * efficiency),
        "pair_seconds": scores * _pair_seconds(gpu, model, attention) * ranks / (gpus * efficiency),
        "step_seconds": step_cost * step,
        "micro_seconds": step_cost * micro,
    }


def sync_seconds(
    model: ModelSize,
    path: Literal["nccl", "packed", "files", "ipc"],
    *,
    gpu: GpuSheet,
    inside: bool,
    gpus: int,
    offloads: bool = False,
    cost: float = 1.0,
) -> float:
    """Return how long the weights take from a trainer of so many GPUs into all engines.

    - nccl: one rank gathers and broadcasts parameter after parameter, at a tenth of the link's rate.
    - packed: the same in large buffers.
    - files: written and then read.
    - ipc: engines on the trainer's own GPUs; each gathers its shard. They free their cache and make it again.

    ``inside``: whether engines and trainer are in one node. ``offloads``: the trainer's float32 weights come from its
    host's memory and return. ``cost`` multiplies the time.
    """
    size = 2.0 * model.parameters
    rates = {
        "nccl": 0.1 * (gpu.node_rate if inside else gpu.network_rate),
        "packed": PACKED_RATE,
        "files": FILE_RATE / 2.0 * max(1.0, gpus / 8),
        "ipc": 0.1 * gpu.node_rate * max(1.0, gpus / 8),
    }
    loading = 2 * 4.0 * model.parameters / gpus / PAGEABLE_RATE if offloads else 0.0
    return cost * (WAIT_SECONDS + size / rates[path] + loading + CACHE_SECONDS * (path == "ipc"))


def switch_seconds(model: ModelSize, *, weight_gpus: int, moment_gpus: int, cost: float = 1.0) -> float:
    """Return how long colocated engines and trainer take to give their GPUs to each other and back.

    The trainer's weights (4 bytes each) and moments with float32 weights (12), each spread over so many GPUs, leave for
    the host's memory and return. ``cost`` multiplies the time.
    """
    each = 4.0 / weight_gpus + 12.0 / moment_gpus
    return cost * 2 * each * model.parameters / PAGEABLE_RATE


def call_seconds(sequences: int, *, calls: int, padded: int, cost: float = 1.0) -> float:
    """Return what an update of so many calls (passes without gradients, the training) takes besides the steps.

    ``padded``: tokens to which one process pads each sequence before it hands the batch to the ranks of a call; 0 if
    ranks fetch their own sequences. ``cost`` multiplies the time.
    """
    return cost * sequences * (SEQUENCE_SECONDS + calls * padded * COLUMN_BYTES / HANDOVER_RATE)
