"""Memory of engines and learners on a GPU and on a host, by formulas; an estimate for plans.

All figures are bytes. The reserves, round numbers of ours, stand for what no formula counts (fragments, libraries).

Sources: keys and values, vLLM's paged cache: 2 x layers x kv heads x head x bytes a token; parts of FSDP2's
``fully_shard``: parameters in their own type, and what is trained in float32: gradients, AdamW's two moments, and a
master of each weight that is held in less, divided by ranks (16 bytes a trained float32 weight, 20 in bfloat16), and
the units that are gathered; activations with checkpointing: one hidden state a layer,
and one layer computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dartsim.lab.model_shapes import ModelShape

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
"""Of each trained weight, its gradient and its moments."""
BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4, "auto": 2}
"""Bytes of a value; engines take these names too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """One GPU of an engine.

    Attributes:
        weights: Its shard of the model, and of an adapter.
        working: Peak while computing: a chunk of tokens, all screenshots of one prompt, logits of all requests; with
            graphs and reserve.
        kv_bytes_per_token: Keys and values of one token.
        kv: The rest, for keys and values.
        wanted: Keys and values of ``max_num_seqs`` requests of ``max_model_len`` tokens.
        budget: Its limit.
    """

    weights: int
    working: int
    kv_bytes_per_token: int
    kv: int
    wanted: int
    budget: int

    @property
    def kv_tokens(self) -> int:
        return max(0, self.kv // self.kv_bytes_per_token)


def engine_memory(
    shape: ModelShape,
    *,
    gpu_bytes: int,
    share: float,
    max_model_len: int,
    max_num_seqs: int,
    max_images: int,
    screen: tuple[int, int],
    value_bytes: int = 2,
    weight_bytes: int | None = None,
    kv_value_bytes: int | None = None,
    tensor_parallel: int = 1,
    lora_rank: int | None = None,
) -> EngineMemory:
    """Estimate the memory of one GPU of a vLLM engine.

    Args:
        shape: The model.
        gpu_bytes: Memory of the GPU.
        share: Share of it for the engine.
        max_model_len: Longest prompt and reply together, tokens.
        max_num_seqs: Requests computed at once.
        max_images: Largest number of screenshots in a prompt.
        screen: Width and height of a screenshot, pixels.
        value_bytes: Of a value that is computed.
        weight_bytes: Of a weight of the layers, if it is quantized; None: as computed.
        kv_value_bytes: Of a value in the cache; None: as computed.
        tensor_parallel: GPUs of the engine.
        lora_rank: Rank of the adapter that it serves.
    """
    text, vision = shape.text, shape.vision
    parts = min(tensor_parallel, text.kv_heads)  # fewer key-value heads than GPUs are copied
    kv_bytes = shape.kv_bytes_per_token(kv_value_bytes or value_bytes) // parts
    chunk = min(CHUNK_TOKENS, max_num_seqs * max_model_len)
    tokens = chunk * (6 * text.hidden + 3 * text.intermediate // tensor_parallel) * value_bytes
    patches = max_images * shape.image_patches(*screen)
    pictures = patches * (6 * vision.hidden + 3 * vision.intermediate) * value_bytes
    logits = 3 * max_num_seqs * text.vocabulary * 4
    working = max(tokens, pictures) + logits + GRAPH_BYTES + GPU_RESERVE_BYTES
    layers = text.layers * text.layer_parameters
    kept = (shape.parameters - layers) * value_bytes
    adapter = text.lora_parameters(lora_rank) * value_bytes if lora_rank else 0
    weights = (kept + layers * (weight_bytes or value_bytes) + adapter) // tensor_parallel
    budget = int(gpu_bytes * share)
    return EngineMemory(
        weights=weights,
        working=working,
        kv_bytes_per_token=kv_bytes,
        kv=budget - weights - working,
        wanted=max_num_seqs * max_model_len * kv_bytes,
        budget=budget,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerMemory:
    """One rank of a learner.

    Attributes:
        parameters: Its shard of the weights.
        reference: Its shard of the initial weights, for the KL term of the objective.
        gradients: Its shard, in float32, and as they are computed.
        optimizer: Its shard of AdamW's two moments and of masters, in float32.
        gathered: Complete units: embeddings and output, and the vision tower or two layers; and the gradient of the
            largest while it is reduced.
        activations: Of a micro-batch.
        logits: Of its reply tokens, with probabilities and their gradients in float32.
        reserve: See the constants.
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
        dtype: Of weights; LoRA, gradients and moments are in float32.
        compute: Of gathered weights and computations.
        checkpointing: Whether activations are recomputed.
        reference: Whether the initial weights are kept.
        lora_rank: Rank of LoRA; None trains all weights.
    """
    held, small = BYTES[dtype], BYTES[compute]
    additions = shape.text.lora_parameters(lora_rank) if lora_rank else 0
    trained = additions or shape.parameters
    parameters = (shape.parameters * held + additions * MASTER_BYTES) // ranks
    rounded = 0 if additions or held == MASTER_BYTES else trained
    state = LearnerMemory(
        parameters=parameters,
        reference=shape.parameters * held // ranks if reference else 0,
        gradients=(trained * MASTER_BYTES + rounded * held) // ranks,
        optimizer=(2 * trained + rounded) * MASTER_BYTES // ranks,
        gathered=_gathered(shape, small, trains_all=not additions),
        activations=_activations(shape, tokens, images, screen, small, checkpointing),
        # The head's output; float32 logits, log-probabilities, and the gradients of both.
        logits=replies * REPLY_TOKENS * shape.text.vocabulary * (small + 16),
        reserve=0,
        host=(2 if reference else 1) * shape.parameters * held,
    )
    return replace(state, reserve=GPU_RESERVE_BYTES + int(FRAGMENT_SHARE * state.total))


def _gathered(shape: ModelShape, small: int, *, trains_all: bool) -> int:
    rest, layer, vision = shape.text.rest_parameters, shape.text.layer_parameters, shape.vision.parameters
    whole = (rest + max(vision, 2 * layer)) * small
    largest = max(rest, vision, layer)
    return whole + (largest * (small + 4) if trains_all else 0)


def _activations(
    shape: ModelShape, tokens: int, images: int, screen: tuple[int, int], small: int, checkpointing: bool
) -> int:
    text, vision = shape.text, shape.vision
    patches = images * shape.image_patches(*screen)
    # A layer keeps for its backward pass: its input and both norms, also in float32; queries, keys, values and the
    # attention's output; and the three projections of the MLP.
    heads = (2 * text.heads + 2 * text.kv_heads) * text.head_dim
    layer = tokens * ((4 * text.hidden + heads + 3 * text.intermediate) * small + 4 * text.hidden * 4)
    width = 3 if vision.gated else 2
    block = patches * ((8 * vision.hidden + width * vision.intermediate) * small + 4 * vision.hidden * 4)
    if not checkpointing:
        return text.layers * layer + vision.depth * block
    kept = (text.layers * tokens * text.hidden + vision.depth * patches * vision.hidden) * small
    return kept + 2 * max(layer, block)  # the recomputed layer, and its gradients
