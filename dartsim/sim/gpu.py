"""The time of an inference engine's iteration on a GPU, and the GPU's capacity.

The model served is Qwen2.5-VL-7B (the shape of UI-TARS-1.5-7B): 28 layers, 4 key-value heads, hidden size
3,584, vocabulary 152,064, a vision transformer of 675 M parameters. One GPU a worker (tensor parallel 1).

One iteration takes::

    LIN(decode + prefill tokens) + HEAD + kv_tokens * KV + pairs * PA + images * VIT + c0 + sequences * c1

Its parts and where their numbers come from:

- ``LIN``: all linear layers. Medians of 9 operators times 32 layers, summed, from Vidur's public profiles of
  Llama-2-7B (6.48 B linear weights there, 6.52 B here). Straight lines between the points; past the last one,
  the slope fitted at 512 tokens and more.
- ``HEAD``: the output layer, bound by memory: a roofline at 80 % of the bandwidth. *Inferred.*
- ``KV``: reading 57,344 bytes of cache a token of context: a roofline at 75 % of the bandwidth. *Inferred.*
- ``PA``: 401 kFLOP of prefill attention a (query, key) pair: a roofline at 40 % of the peak. *Inferred.*
- ``VIT``: one 1080p screenshot (10,764 patches, 2,691 tokens) through the vision transformer, at 35 % of the
  peak. *Inferred; the first number to calibrate on a real GPU.*
- ``c0``, ``c1``: the scheduler and sampler, fixed and a sequence. *Inferred.*

Checked against public benchmarks of Llama-3.1-8B in bf16: H100 at 1 / 4 requests 6.48 / 6.59 ms a token,
model 6.4 / 6.4; at 16 requests 10.9, model 7.1 without prefill between (not explained); A100-40 13.3, model
13.6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from dartsim.config.sections.cluster import RooflineConfig

KV_BYTES_PER_TOKEN = 57_344
"""28 layers x 4 heads x 128 x keys and values x 2 bytes."""

LINEAR_PARAMETERS = 6.52e9
"""Weights in the linear layers of Qwen2.5-7B, without the embedding and the output layer."""


@dataclass(frozen=True, kw_only=True)
class GpuProfile:
    """One worker's GPU, as its engine sees it.

    Attributes:
        name: Its name in configurations.
        source: Where the numbers come from.
        linear: Points (tokens in the iteration, seconds) of the linear layers, tokens rising from 1.
        linear_slope_seconds: Linear layers, per token beyond the last point.
        head_seconds: Output layer, per iteration.
        kv_seconds: Reading the cache, per token of context of a decoding sequence.
        prefill_pair_seconds: Prefill attention, per (query, key) pair.
        image_seconds: Vision transformer, per image that is not in the prefix cache.
        fixed_seconds: Overhead per iteration.
        sequence_seconds: Overhead per sequence and iteration.
        kv_capacity_tokens: Tokens the cache can hold.
        max_num_seqs: Sequences that may be in the engine's batch at once (vLLM's default is 256).
        token_budget: Tokens one iteration may process, decode and prefill together (vLLM's default on large
            GPUs).
    """

    name: str
    source: str
    linear: tuple[tuple[int, float], ...]
    linear_slope_seconds: float
    head_seconds: float
    kv_seconds: float
    prefill_pair_seconds: float
    image_seconds: float
    fixed_seconds: float = 0.3e-3
    sequence_seconds: float = 12e-6
    kv_capacity_tokens: int
    max_num_seqs: int = 256
    token_budget: int = 8_192

    def __post_init__(self) -> None:
        tokens = [point[0] for point in self.linear]
        if len(tokens) < 2 or tokens[0] != 1 or any(b <= a for a, b in pairwise(tokens)):
            raise ValueError(f"linear must hold two or more points, tokens rising from 1; got {tokens}")
        if not 1 <= self.max_num_seqs < self.token_budget:
            raise ValueError(
                f"max_num_seqs must be at least 1 and below token_budget ({self.token_budget}), "
                f"got {self.max_num_seqs}: a full batch would leave no room to prefill"
            )

    def linear_seconds(self, tokens: int) -> float:
        """Return the time of the linear layers for an iteration of ``tokens`` >= 1 tokens."""
        for (low, low_seconds), (high, high_seconds) in pairwise(self.linear):
            if tokens <= high:
                return low_seconds + (high_seconds - low_seconds) * (tokens - low) / (high - low)
        return self.linear[-1][1] + (tokens - self.linear[-1][0]) * self.linear_slope_seconds

    @cached_property
    def base_seconds(self) -> tuple[float, ...]:
        """Seconds of an iteration of ``n`` tokens, without context, images and sequences, indexed by ``n``.

        Entry 0 is unused. The table reaches the token budget, so the engine never interpolates.
        """
        overhead = self.head_seconds + self.fixed_seconds
        return (0.0, *(self.linear_seconds(n) + overhead for n in range(1, self.token_budget + 1)))

    @cached_property
    def decode_seconds(self) -> list[float]:
        """Seconds of an iteration that decodes ``n`` sequences, without their context, indexed by ``n``."""
        return [self.base_seconds[n] + n * self.sequence_seconds for n in range(self.max_num_seqs + 1)]

    def iteration_seconds(
        self,
        num_decode: int,
        prefill_tokens: int = 0,
        kv_tokens: float = 0,
        prefill_pairs: float = 0,
        num_images: float = 0,
        num_seqs: int | None = None,
    ) -> float:
        """Return how long one iteration takes.

        Args:
            num_decode: Sequences that decode one token each.
            prefill_tokens: Prompt tokens processed in the same iteration.
            kv_tokens: Context of the decoding sequences, tokens.
            prefill_pairs: (query, key) pairs of the prompt tokens processed.
            num_images: Images encoded.
            num_seqs: Sequences in the iteration; by default the decoding ones, plus one if it prefills.
        """
        if num_seqs is None:
            num_seqs = num_decode + (prefill_tokens > 0)
        return (
            self.linear_seconds(num_decode + prefill_tokens)
            + self.head_seconds
            + kv_tokens * self.kv_seconds
            + prefill_pairs * self.prefill_pair_seconds
            + num_images * self.image_seconds
            + self.fixed_seconds
            + num_seqs * self.sequence_seconds
        )

    def peak_tokens_per_second(self, context_tokens: int) -> float:
        """Return the highest steady decode rate when every sequence holds ``context_tokens`` of context.

        It is reached by pure decoding with the best batch size within the cache and ``max_num_seqs``. The share of the
        peak token rate refers to it; prefill keeps a real engine below it.
        """
        if not 1 <= context_tokens <= self.kv_capacity_tokens:
            raise ValueError(f"context_tokens must be in [1, {self.kv_capacity_tokens}], got {context_tokens}")
        largest = min(self.max_num_seqs, self.kv_capacity_tokens // context_tokens)
        return max(n / self.iteration_seconds(n, kv_tokens=n * context_tokens) for n in range(1, largest + 1))


SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Tokens of an iteration at which a roofline's linear layers are computed."""


def roofline_profile(roofline: RooflineConfig) -> GpuProfile:
    """Return a profile whose linear layers take the longer of reading their weights and computing the tokens.

    An iteration reads the experts that at least one of its tokens is routed to; routing is taken as uniform.
    """
    each = roofline.token_seconds

    def linear_seconds(tokens: int) -> float:
        experts = 1.0 - (1.0 - roofline.expert_share) ** tokens
        return max(roofline.iteration_seconds + roofline.expert_seconds * experts, tokens * each)

    everything = roofline.iteration_seconds + roofline.expert_seconds
    ridge = round(everything / each) if each else 0
    sizes = (*(size for size in SIZES if size <= 2 * ridge or size <= 2), max(ridge, 2) + 2 * SIZES[-1])
    return GpuProfile(
        name="roofline",
        source="a data sheet and a model's shape (cluster.engine.roofline)",
        linear=tuple((size, linear_seconds(size)) for size in sizes),
        linear_slope_seconds=each,
        head_seconds=0.0,
        kv_seconds=roofline.kv_seconds,
        prefill_pair_seconds=roofline.pair_seconds,
        image_seconds=0.0,
        sequence_seconds=roofline.sequence_seconds,
        kv_capacity_tokens=roofline.kv_tokens,
        max_num_seqs=roofline.max_num_seqs,
    )


H100 = GpuProfile(
    name="h100",
    source="Vidur's public profile of Llama-2-7B on H100; rooflines for the rest (module docstring)",
    linear=(
        (1, 5.6e-3),
        (64, 5.9e-3),
        (128, 6.4e-3),
        (256, 9.3e-3),
        (512, 12.1e-3),
        (1024, 21.3e-3),
        (2048, 40.8e-3),
        (4096, 83.9e-3),
    ),
    linear_slope_seconds=20.4e-6,
    head_seconds=0.41e-3,
    kv_seconds=22.8e-9,
    prefill_pair_seconds=1.0e-9,
    image_seconds=42e-3,
    kv_capacity_tokens=861_000,  # (0.9 x 80 GB - 16.6 GB of weights - 6 GB reserve) / 57,344 bytes
)
"""H100 SXM 80 GB, bf16 weights."""

A100_80 = GpuProfile(
    name="a100_80",
    source="Vidur's public profile of Llama-2-7B on A100 80 GB; rooflines for the rest (module docstring)",
    linear=(
        (1, 9.3e-3),
        (64, 9.8e-3),
        (128, 12.3e-3),
        (256, 17.9e-3),
        (512, 33.6e-3),
        (1024, 68.3e-3),
        (2048, 134e-3),
        (4096, 260e-3),
    ),
    linear_slope_seconds=64.6e-6,
    head_seconds=0.67e-3,
    kv_seconds=37.5e-9,
    prefill_pair_seconds=3.2e-9,
    image_seconds=133e-3,
    kv_capacity_tokens=861_000,
)
"""A100 SXM 80 GB, bf16 weights."""

H100_FP8 = replace(
    H100,
    name="h100_fp8",
    source="derived from h100, not measured: linear layers at half the time",
    linear=tuple((tokens, seconds / 2) for tokens, seconds in H100.linear),
    linear_slope_seconds=H100.linear_slope_seconds / 2,
    # One byte less per linear weight leaves more memory for the cache.
    kv_capacity_tokens=H100.kv_capacity_tokens + int(LINEAR_PARAMETERS / KV_BYTES_PER_TOKEN),
)
"""H100 with 8-bit linear layers. **Derived from H100, not measured.**

Half the bytes halve the part of ``LIN`` that reads weights, and twice the peak halves the part that computes;
output layer, attention, cache and vision transformer stay in bf16. It is an upper bound: real kernels gain
less. It exists because DART's paper says that its rollout workers were quantized, while its released code starts vLLM
in bf16.
"""

PROFILES: dict[str, GpuProfile] = {profile.name: profile for profile in (H100, A100_80, H100_FP8)}
"""All profiles by the name used in configurations."""
