"""Sampling replies to a batch of requests, with a key-value cache and the log-probabilities as sampled.

A reply depends only on its seed, turn and prompt, not on the other requests of its batch: every token is drawn by
inverting its distribution at one uniform number, a hash of (seed, turn, position).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.packing import Example, Inputs, distribution, hidden, pack, picture_tokens, rows_of, score
from dartsim.real.vlm.prompts import VlmPrompt
from dartsim.real.vlm.trunk import Attend, Cache, attention, causal

_GROW = 32
"""Positions that a cache grows by."""


class Sampled(NamedTuple):
    """A reply: int64 tokens [n], float32 log-probabilities and entropies [n] in nats, as sampled."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]


@torch.inference_mode()
def sample(
    vlm: Vlm,
    prompts: Sequence[VlmPrompt],
    seeds: Sequence[tuple[int, int]],
    *,
    greedy: bool = False,
    max_tokens: int = 65_536,
    firsts: FirstTokens | None = None,
) -> list[Sampled]:
    """Return a reply to each prompt.

    Args:
        vlm: The model.
        prompts: The prompts.
        seeds: The attempt's seed and the turn of each.
        greedy: Take the likeliest tokens, as at temperature 0; log-probabilities are still those of the sampled
            distribution, or at temperature 0 of the model's own.
        max_tokens: Padded prompt tokens computed at once.
        firsts: Cached logits of earlier prompts, under the same weights.
    """
    if len(prompts) != len(seeds):
        raise ValueError(f"wanted a seed a prompt, got {len(seeds)} seeds for {len(prompts)} prompts")
    keys = reply_keys(seeds)
    greedy = greedy or vlm.decoding.temperature == 0.0
    if firsts is not None and firsts.suffice(vlm):
        return firsts.sample(vlm, prompts, keys, greedy=greedy, max_tokens=max_tokens)
    replies: list[Sampled | None] = [None] * len(prompts)
    for rows in prompt_rows(prompts, max_tokens=max_tokens):
        members = [member for row in rows for member in row.members]
        for member, reply in zip(members, _Decoder(vlm, rows, keys[members], greedy).run(), strict=True):
            replies[member] = reply
    return [reply for reply in replies if reply is not None]


class PromptRow(NamedTuple):
    """A prompt, and the numbers of the requests that it is of."""

    prompt: VlmPrompt
    members: list[int]


def prompt_rows(prompts: Sequence[VlmPrompt], *, max_tokens: int) -> list[list[PromptRow]]:
    """Return the distinct prompts in batches of at most ``max_tokens`` padded tokens; a longer one is alone."""
    by_key: dict[Any, PromptRow] = {}
    for number, prompt in enumerate(prompts):
        by_key.setdefault(prompt.key, PromptRow(prompt, [])).members.append(number)
    batches: list[list[PromptRow]] = []
    for row in sorted(by_key.values(), key=lambda row: -len(row.prompt.tokens)):
        if batches and (len(batches[-1]) + 1) * len(batches[-1][0].prompt.tokens) <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def last_hidden(vlm: Vlm, prompts: Sequence[VlmPrompt], attend: Attend = causal) -> Tensor:
    """Return the last hidden state of each prompt, [B, D]. They are padded on the right, where nothing causal looks."""
    lengths = [len(prompt.tokens) for prompt in prompts]
    width = max(lengths)
    ids = np.full((len(prompts), width), vlm.vocabulary.pad, dtype=np.int64)
    positions = np.zeros((3, *ids.shape), dtype=np.int64)
    placed: list[tuple[Picture, int]] = []
    for b, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        ids[b, :length], positions[:, b, :length] = prompt.tokens, prompt.positions
        starts = (b * width + start for start in prompt.image_starts)
        placed += zip(prompt.pictures, starts, strict=True)
    inputs = Inputs(torch.from_numpy(ids), torch.from_numpy(positions), *picture_tokens(vlm, placed))
    return hidden(vlm, inputs, attend)[torch.arange(len(prompts)) * width + torch.tensor(lengths) - 1]


class FirstTokens:
    """A cache of first tokens' logits by prompt, for one set of weights of a model whose replies are single tokens.

    The attempts of a group have the same first prompt, whose logits are computed once.
    """

    def __init__(self, max_prompts: int = 512) -> None:
        self._max_prompts = max_prompts
        self._logits: dict[Any, Tensor] = {}

    @staticmethod
    def suffice(vlm: Vlm) -> bool:
        """Whether a model's replies end with their first token."""
        return min(vlm.grammar.longest or vlm.decoding.max_new_tokens, vlm.decoding.max_new_tokens) == 1

    def sample(
        self, vlm: Vlm, prompts: Sequence[VlmPrompt], keys: NDArray[np.uint64], *, greedy: bool, max_tokens: int
    ) -> list[Sampled]:
        """Return a reply to each prompt; only new prompts are computed."""
        new = [prompt for prompt in prompts if prompt.key not in self._logits]
        for rows in prompt_rows(new, max_tokens=max_tokens):
            logits = vlm.trunk.logits(last_hidden(vlm, [row.prompt for row in rows]))
            self._logits.update((row.prompt.key, logit) for row, logit in zip(rows, logits, strict=True))
        logits = torch.stack([self._logits[prompt.key] for prompt in prompts])
        while len(self._logits) > self._max_prompts:
            del self._logits[next(iter(self._logits))]
        drawn, logprobs, entropies = draw(vlm, logits, keys, 0, greedy=greedy)
        columns = (drawn.numpy(), logprobs.numpy(), entropies.numpy())
        return [Sampled(*(column[i : i + 1].copy() for column in columns)) for i in range(len(prompts))]


def draw(
    vlm: Vlm, logits: Tensor, keys: NDArray[np.uint64], place: int, *, greedy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens [B] drawn at a position of the replies, their log-probabilities, and the entropies there."""
    logprobs, entropies = distribution(logits, vlm.allowed, vlm.decoding.temperature or 1.0)
    if greedy:
        drawn = logprobs.argmax(-1)
    else:
        mass = logprobs.double().exp().cumsum(-1)
        at = torch.from_numpy(uniforms(keys, place))[:, None] * mass[:, -1:]
        # The first token whose cumulated mass exceeds the number; a token without mass is never drawn.
        drawn = torch.searchsorted(mass, at, right=True)[:, 0]
    return drawn, logprobs.gather(1, drawn[:, None])[:, 0], entropies


@torch.no_grad()
def score_reply(vlm: Vlm, prompt: VlmPrompt, tokens: Sequence[int]) -> Sampled:
    """Return a given reply as if the model had sampled it, for storing a demonstration.

    Raises:
        ValueError: If the grammar does not allow it.
    """
    vlm.grammar.check(tokens)
    examples = [Example(prompt, np.asarray(tokens, dtype=np.int64))]
    logprobs, entropies = score(vlm, pack(vlm, rows_of(examples), examples))
    return Sampled(examples[0].tokens, logprobs.numpy(), entropies.numpy())


class _Decoder:
    """Decodes the replies to some rows' prompts; B counts unfinished replies."""

    def __init__(self, vlm: Vlm, rows: Sequence[PromptRow], keys: NDArray[np.uint64], greedy: bool) -> None:
        self._vlm = vlm
        self._greedy = greedy
        self._keys = keys
        self._prompts = [row.prompt for row in rows]
        self._row = torch.tensor([b for b, row in enumerate(rows) for _ in row.members])
        longest = vlm.grammar.longest or vlm.decoding.max_new_tokens
        self._max_new = min(longest, vlm.decoding.max_new_tokens)
        self._next = torch.tensor([prompt.next_position for prompt in self._prompts])[self._row]
        self._lengths = torch.tensor([len(prompt.tokens) for prompt in self._prompts])
        self._used = int(self._lengths.max())
        self._uneven = bool((self._lengths != self._used).any())
        self._cache: Cache = []
        self._angles: tuple[Tensor, Tensor] | None = None
        self._visible = torch.zeros(0)

    def run(self) -> list[Sampled]:
        count = len(self._keys)
        tokens = np.zeros((count, self._max_new), dtype=np.int64)
        logprobs = np.zeros((count, self._max_new), dtype=np.float32)
        entropies = np.zeros((count, self._max_new), dtype=np.float32)
        lengths = np.zeros(count, dtype=np.int64)
        alive = np.arange(count)
        logits = self._prefill()
        for place in range(self._max_new):
            drawn, logprob, entropy = draw(self._vlm, logits, self._keys[alive], place, greedy=self._greedy)
            tokens[alive, place] = drawn.numpy()
            logprobs[alive, place] = logprob.numpy()
            entropies[alive, place] = entropy.numpy()
            lengths[alive] += 1
            going = ~self._vlm.ends[drawn]
            if place + 1 == self._max_new or not going.any():
                break
            if not going.all():
                keep = torch.nonzero(going).flatten()
                alive, drawn = alive[keep.numpy()], drawn[keep]
                self._keep(keep)
            logits = self._step(drawn, place)
        return [
            Sampled(tokens[i, :n].copy(), logprobs[i, :n].copy(), entropies[i, :n].copy())
            for i, n in enumerate(lengths.tolist())
        ]

    def _prefill(self) -> Tensor:
        """Compute the prompts, each once, and return the logits of every reply's first token."""
        vlm, row = self._vlm, self._row
        states = last_hidden(vlm, self._prompts, causal if self._max_new == 1 else self._store_prompt)
        if self._max_new > 1 and self._uneven:
            places = torch.arange(self._cache[0][0].shape[2])
            lengths = self._lengths[row][:, None]
            self._visible = ((places < lengths) | (places >= self._used))[:, None, None, :]
        return vlm.trunk.logits(states)[row]

    def _store_prompt(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        room = min(self._max_new - 1, _GROW)
        shape = (len(self._row), k.shape[1], k.shape[2] + room, k.shape[3])
        stored = []
        for new in (k, v):
            full = new.new_empty(shape)
            full[:, :, : k.shape[2]] = new[self._row]
            full[:, :, k.shape[2] :] = 0  # a masked position is still multiplied
            stored.append(full)
        self._cache.append((stored[0], stored[1]))
        return causal(number, q, k, v)

    def _step(self, drawn: Tensor, place: int) -> Tensor:
        """Feed the drawn tokens and return the logits of the next ones."""
        trunk = self._vlm.trunk
        if self._used == self._cache[0][0].shape[2]:
            self._grow()
        at = self._used
        self._used += 1

        mask = self._visible[..., : at + 1] if self._uneven else None

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._cache[number]
            keys[:, :, at : at + 1] = k
            values[:, :, at : at + 1] = v
            return attention(q, keys[:, :, : at + 1], values[:, :, : at + 1], mask=mask)

        x, _ = trunk.embed(drawn[:, None], None, drawn, drawn)
        cos, sin = self._rotary(x)
        rotary = (cos[:, :, place : place + 1], sin[:, :, place : place + 1])
        return trunk.logits(trunk.layers(x, rotary, attend)[:, 0])

    def _rotary(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine [B, 1, positions, head] of the replies' positions, computed once."""
        if self._angles is None:
            positions = self._next[:, None] + torch.arange(self._max_new - 1)
            self._angles = self._vlm.trunk.rotary(x, positions.expand(3, -1, -1))
        return self._angles

    def _grow(self) -> None:
        def wider(x: Tensor) -> Tensor:
            return torch.cat([x, x.new_zeros(*x.shape[:2], _GROW, x.shape[3])], dim=2)

        self._cache = [(wider(k), wider(v)) for k, v in self._cache]
        if self._uneven:
            more = torch.ones((*self._visible.shape[:3], _GROW), dtype=torch.bool)
            self._visible = torch.cat([self._visible, more], dim=3)

    def _keep(self, keep: Tensor) -> None:
        """Drop the finished replies."""
        self._cache = [(k[keep], v[keep]) for k, v in self._cache]
        self._next = self._next[keep]
        if self._angles is not None:
            self._angles = (self._angles[0][keep], self._angles[1][keep])
        if self._uneven:
            self._visible = self._visible[keep]


def reply_keys(seeds: Sequence[tuple[int, int]]) -> NDArray[np.uint64]:
    """Return a key for each (seed, turn)."""
    numbers = np.array([(seed & (2**64 - 1), turn) for seed, turn in seeds], dtype=np.uint64).reshape(-1, 2)
    return _mix(_mix(numbers[:, 0]) + (numbers[:, 1] + np.uint64(1)) * _GOLDEN)


def uniforms(keys: NDArray[np.uint64], place: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key and place."""
    mixed = _mix(keys + np.uint64((place + 1) * int(_GOLDEN) % 2**64))
    return np.minimum((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53, 1.0 - 2.0**-40)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: NDArray[np.uint64]) -> NDArray[Any]:
    """SplitMix64's finalizer, modulo 2**64 as it is meant."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
