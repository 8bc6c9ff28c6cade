"""Formulas for the memory of engines and ranks on a GPU and of the driver's machine, and for disk space.

All figures are bytes. The reserves are round numbers for what the formulas do not count (fragments, libraries).

- Keys and values in vLLM's paged cache: 2 x layers x kv heads x head x bytes per token.
- Ranks with FSDP2's ``fully_shard``: parameters in their own type; gradients, AdamW's two moments, and a master of each
  weight of lower precision, all in float32 and divided by ranks (16 bytes per trained float32 weight, 20 in bfloat16);
  and the gathered units.
- Activations with checkpointing: one hidden state per layer, and one recomputed layer.
- Disk space: the folders of ``dartsim.real.learners.fsdp.learner``, ``dartsim.real.engines.weights`` and
  ``dartsim.store.checkpoints``, while the next version is being written and the oldest still exists.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from dartsim.config import Config
from dartsim.lab.model_shapes import ModelShape
from dartsim.real.containers.plan import desktop_gib, desktops_by_host, docker_hosts
from dartsim.real.engines.options import serves_adapters, weights_dtype
from dartsim.store.checkpoints import KEEP_CHECKPOINTS

NODE_GPUS = 8
"""GPUs of a machine on which Ray places ranks."""
GIB = 2**30
GPU_RESERVE_BYTES = 2 * GIB
"""CUDA context, workspaces and communication buffers of a process."""
FRAGMENT_SHARE = 0.05
"""Share of a learner's memory that the allocator loses to fragmentation."""
GRAPH_BYTES = GIB
"""CUDA graphs of an engine."""
CHUNK_TOKENS = 8_192
"""Tokens that a vLLM engine computes at once on a large GPU (``max_num_batched_tokens``)."""
REPLY_TOKENS = 104
"""Mean reply in DART's history, for the logits of a micro-batch."""
MASTER_BYTES = 4
"""Bytes of each trained weight's master, of its gradient, and of each moment."""
BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4, "auto": 2}
"""Bytes of a value, by the names that engines accept too."""
PNG_SHARE = 0.2
"""Size of a screenshot's PNG file relative to its pixels' bytes: 1.2 MB for a busy screen of 1920 x 1080."""
DECODED_FRAMES = 3
"""Decoded screens of a desktop: two that are compared, and the one being decoded."""
PROMPT_TOKEN_BYTES = 32
"""Bytes of a prompt token and its three positions for the ranks; in memory twice while they are written."""
CUTTING_BYTES = 2**30
"""Memory of the screenshots that are cut into patches for the ranks at the same time, with up to 64 cores."""
SPOOLED_VERSIONS = 4
"""Versions of a learner in the driver's process that stay on disk for engines (``Spool``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """One GPU of an engine.

    Attributes:
        weights: Its shard of the model, and of an adapter.
        working: Peak while computing: a chunk of tokens, all screenshots of one prompt, logits of all requests; with
            graphs and reserve.
        kv_bytes_per_token: Keys and values of one token.
        kv: The rest, which is used for keys and values.
        budget: Memory that the engine may use.
    """

    weights: int
    working: int
    kv_bytes_per_token: int
    kv: int
    budget: int

    @property
    def kv_tokens(self) -> int:
        return max(0, self.kv // self.kv_bytes_per_token)


def engine_memory(config: Config, shape: ModelShape, screen: tuple[int, int]) -> EngineMemory:
    """Estimate the memory of one GPU of a vLLM engine; ``screen``: width and height of a screenshot, pixels."""
    vllm, text, vision = config.vllm, shape.text, shape.vision
    value_bytes = BYTES.get(vllm.dtype, 2)
    weight_bytes = value_bytes if vllm.quantization == "none" else 1
    kv_value_bytes = value_bytes if vllm.kv_cache_dtype == "auto" else 1
    parts = min(vllm.tensor_parallel, text.kv_heads)  # fewer key-value heads than GPUs are copied
    kv_bytes = shape.kv_bytes_per_token(kv_value_bytes) // parts
    wanted = vllm.max_num_seqs * vllm.max_model_len
    tokens = min(CHUNK_TOKENS, wanted) * (6 * text.hidden + 3 * text.intermediate // vllm.tensor_parallel) * value_bytes
    patches = config.policy.max_images * shape.image_patches(*screen)
    pictures = patches * (6 * vision.hidden + 3 * vision.intermediate) * value_bytes
    logits = 3 * vllm.max_num_seqs * text.vocabulary * 4
    working = max(tokens, pictures) + logits + GRAPH_BYTES + GPU_RESERVE_BYTES
    layers = text.layers * text.layer_parameters
    rank = config.trainer.lora.rank if serves_adapters(config) else None
    adapter = text.lora_parameters(rank) * value_bytes if rank else 0
    weights = (shape.parameters - layers) * value_bytes + layers * weight_bytes + adapter
    weights //= vllm.tensor_parallel
    budget = int(int(config.cluster.gpu_memory_gib * GIB) * vllm.gpu_memory_share)
    return EngineMemory(
        weights=weights,
        working=working,
        kv_bytes_per_token=kv_bytes,
        kv=budget - weights - working,
        budget=budget,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerMemory:
    """One rank of a learner.

    Attributes:
        parameters: Its shard of the weights.
        reference: Its shard of the initial weights, for the KL term of the objective.
        gradients: Its shard, in float32, and the gradients in the type in which they are computed.
        optimizer: Its shard of AdamW's two moments and of masters, in float32.
        gathered: Complete units: embeddings and output, and the vision tower or two layers; and the gradient of the
            largest while it is reduced.
        activations: Activations of a micro-batch.
        logits: Logits of its reply tokens, with probabilities and their gradients in float32.
        reserve: ``GPU_RESERVE_BYTES`` and fragments.
        host: Host memory at the start, when the rank loads the complete model and the reference.
    """

    parameters: int
    reference: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    logits: int
    reserve: int
    host: int

    @property
    def total(self) -> int:
        state = self.parameters + self.reference + self.gradients + self.optimizer
        return state + self.gathered + self.activations + self.logits + self.reserve


def learner_memory(
    shape: ModelShape,
    *,
    ranks: int,
    tokens: int,
    images: int,
    replies: int,
    screen: tuple[int, int],
    dtype: str = "float32",
    compute: str = "bfloat16",
    checkpointing: bool = True,
    reference: bool = True,
    lora_rank: int | None = None,
) -> LearnerMemory:
    """Estimate the memory of one rank.

    Args:
        shape: The model.
        ranks: Number of ranks.
        tokens: Padded tokens of a micro-batch, at least the longest prompt.
        images: Screenshots in it.
        replies: Replies in it.
        screen: Width and height of a screenshot, pixels.
        dtype: Type of weights; LoRA, gradients and moments are in float32.
        compute: Type of gathered weights and computations.
        checkpointing: Whether activations are recomputed.
        reference: Whether the initial weights are in memory, too.
        lora_rank: Rank of LoRA; None trains all weights.
    """
    weight_bytes, value_bytes = BYTES[dtype], BYTES[compute]
    additions = shape.text.lora_parameters(lora_rank) if lora_rank else 0
    trained = additions or shape.parameters
    parameters = (shape.parameters * weight_bytes + additions * MASTER_BYTES) // ranks
    rounded = 0 if additions or weight_bytes == MASTER_BYTES else trained
    state = LearnerMemory(
        parameters=parameters,
        reference=shape.parameters * weight_bytes // ranks if reference else 0,
        gradients=(trained * MASTER_BYTES + rounded * weight_bytes) // ranks,
        optimizer=(2 * trained + rounded) * MASTER_BYTES // ranks,
        gathered=_gathered(shape, value_bytes, trains_all=not additions),
        activations=_activations(shape, tokens, images, screen, value_bytes, checkpointing),
        # The head's output; float32 logits, log-probabilities, and the gradients of both.
        logits=replies * REPLY_TOKENS * shape.text.vocabulary * (value_bytes + 16),
        reserve=0,
        host=(2 if reference else 1) * shape.parameters * weight_bytes,
    )
    return replace(state, reserve=GPU_RESERVE_BYTES + int(FRAGMENT_SHARE * state.total))


def _gathered(shape: ModelShape, value_bytes: int, *, trains_all: bool) -> int:
    rest, layer, vision = shape.text.rest_parameters, shape.text.layer_parameters, shape.vision.parameters
    whole = (rest + max(vision, 2 * layer)) * value_bytes
    largest = max(rest, vision, layer)
    return whole + (largest * (value_bytes + 4) if trains_all else 0)


def _activations(
    shape: ModelShape, tokens: int, images: int, screen: tuple[int, int], value_bytes: int, checkpointing: bool
) -> int:
    text, vision = shape.text, shape.vision
    patches = images * shape.image_patches(*screen)
    # For its backward pass a layer keeps its input and both norms, also in float32; queries, keys, values and the
    # attention's output; and the three projections of the MLP.
    heads = (2 * text.heads + 2 * text.kv_heads) * text.head_dim
    layer = tokens * ((4 * text.hidden + heads + 3 * text.intermediate) * value_bytes + 4 * text.hidden * 4)
    width = 3 if vision.gated else 2
    block = patches * ((8 * vision.hidden + width * vision.intermediate) * value_bytes + 4 * vision.hidden * 4)
    if not checkpointing:
        return text.layers * layer + vision.depth * block
    inputs = (text.layers * tokens * text.hidden + vision.depth * patches * vision.hidden) * value_bytes
    return inputs + 2 * max(layer, block)  # the recomputed layer, and its gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNeeds:
    """Memory and disk space of the driver's machine, with the desktops that it runs itself.

    Attributes:
        start: Memory while every rank loads the model.
        later: Peak memory after that: while the turns of the largest batch are written for the ranks and new weights
            are gathered; without ranks, only the screenshots of live attempts count.
        learner: Disk space in ``trainer.fsdp.folder``: the first model, published weights, checkpoints of the ranks,
            the turns of an update.
        engines: Additional disk space: the model that engines start with, versions written for them, and one that a
            starting engine still reads.
        run: Disk space of the run directory: screenshots of the attempts that are kept, live or in a batch;
            checkpoints, and at its end the model and the learner's state.
    """

    start: int
    later: int
    learner: int
    engines: int
    run: int

    def by_disk(self, config: Config) -> list[tuple[Path, int, int]]:
        """Return each disk of a run: a folder on it, the space needed, and the space free."""
        weights = Path(config.trainer.fsdp.folder or tempfile.gettempdir())
        found: dict[int, tuple[Path, int]] = {}
        for folder, size in ((Path.cwd(), self.run), (weights, self.learner + self.engines)):
            while not folder.is_dir():
                folder = folder.parent
            disk = folder.stat().st_dev
            found[disk] = (folder, found.get(disk, (folder, 0))[1] + size)
        return [(folder, size, shutil.disk_usage(folder).free) for folder, size in found.values()]


def ranks_per_node(config: Config) -> int:
    """Return the ranks on one machine: all of them, or on Ray at most one for each of 8 GPUs."""
    ranks = config.trainer.fsdp.ranks
    nodes = 1 if config.ray.address is None else -(-ranks // NODE_GPUS)
    return -(-ranks // nodes)


def host_needs(
    config: Config, shape: ModelShape, learner: LearnerMemory | None, screen: tuple[int, int], prompt_tokens: int
) -> HostNeeds:
    """Estimate what the driver's machine needs.

    Args:
        config: The configuration.
        shape: The model.
        learner: The memory of a rank on a GPU; None without ranks.
        screen: Width and height of a screenshot, pixels.
        prompt_tokens: Tokens of a full prompt.
    """
    lora = config.trainer.lora.rank
    trained = shape.text.lora_parameters(lora) if lora else shape.parameters
    weight_bytes, served_bytes = BYTES[config.policy.dtype], BYTES[weights_dtype(config) or config.policy.dtype]
    batch = config.curation.batch.max_groups * config.curation.attempts.group_size * config.rollout.max_turns
    here = _desktops_here_bytes(config)
    start = later = 2 * shape.parameters * weight_bytes + here  # the model, and the policy that evaluates
    later += _turns_bytes(config, batch if learner else 0, screen, prompt_tokens)
    if learner is not None:
        gathered_bytes = weight_bytes if lora is None else MASTER_BYTES
        start += ranks_per_node(config) * learner.host
        later += CUTTING_BYTES + trained * (gathered_bytes + (served_bytes if served_bytes != gathered_bytes else 0))
        if config.trainer.optimizer.minibatches * config.trainer.optimizer.epochs > 1:
            # A failed step is rolled back from a copy of weights and moments.
            later += 3 * trained * MASTER_BYTES * ranks_per_node(config) // config.trainer.fsdp.ranks
    state = 3 * trained * MASTER_BYTES  # weights and both moments
    ranks = engines = 0
    if config.backend.learner == "fsdp":
        pictures = batch * shape.image_patches(*screen) * 3 * shape.vision.patch**2
        ranks = (
            shape.parameters * weight_bytes
            + (config.trainer.fsdp.keep_weights + 1) * trained * served_bytes
            + 2 * state
        )
        ranks += pictures
    if config.backend.workers == "vllm":
        spooled = 0 if config.backend.learner == "fsdp" else SPOOLED_VERSIONS + 1
        engines = (
            2 * shape.parameters + spooled * (trained if serves_adapters(config) else shape.parameters)
        ) * served_bytes
    attempts = config.run.keep_attempts + config.rollout.num_envs
    pixels = (attempts * config.rollout.max_turns + batch) * 3 * screen[0] * screen[1]
    run = shape.parameters * served_bytes + (KEEP_CHECKPOINTS + 2) * state + round(PNG_SHARE * pixels)
    return HostNeeds(start=start, later=later, learner=ranks, engines=engines, run=run)


def _turns_bytes(config: Config, batch: int, screen: tuple[int, int], prompt_tokens: int) -> int:
    """Return the memory of the screenshots of desktops, live attempts and the batch, and of the batch's prompts."""
    pixels = 3 * screen[0] * screen[1]
    live = config.rollout.num_envs * config.rollout.max_turns
    decoded = DECODED_FRAMES * config.rollout.num_desktops * pixels
    return round((batch + live) * PNG_SHARE * pixels) + decoded + 2 * batch * PROMPT_TOKEN_BYTES * prompt_tokens


def _desktops_here_bytes(config: Config) -> int:
    """Return the memory of the desktops that the driver's own machine runs."""
    if not config.backend.boots:
        return 0
    hosts = docker_hosts(config.desktop)
    here = sum(count for name, count in desktops_by_host(config).items() if hosts[name].local)
    return round(here * desktop_gib(config) * GIB)
