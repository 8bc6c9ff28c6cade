"""Prompts and replies as tensors; replies to the same prompt share it.

All attempts of a group begin on the same screen, so that one first prompt serves the whole group. A row is a prompt
followed by its replies; each reply attends to the prompt and itself, and its positions continue those of the prompt, so
that it is computed as if it were alone.

    prompt prompt prompt | a1 a2 | b1 | c1 c2 c3          c2 sees: prompt, c1, c2

Rows are padded on the right, where causal attention never looks; only shared prompts need a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.prompts import IntArray, VlmPrompt


class Example(NamedTuple):
    """One turn to be scored: a prompt, its reply's tokens [n], and the grammar's state before each of them."""

    prompt: VlmPrompt
    tokens: IntArray
    states: IntArray


class PackedRow(NamedTuple):
    """A prompt and the numbers of the examples that answer it."""

    prompt: VlmPrompt
    members: list[int]
    length: int


class Packed(NamedTuple):
    """Rows as tensors; M counts the reply tokens of all of them.

    ``pick`` [M] is the position in the flattened [B * L] with the logits of a reply token, ``targets`` [M] the token,
    ``states`` [M] the grammar's state, and ``member`` and ``column`` [M] its example and position there. ``last`` [B]
    is the position of each prompt's last token in the flattened order.
    """

    ids: Tensor
    positions: Tensor
    pictures: list[tuple[tuple[int, int], Tensor]]
    at: Tensor
    take: Tensor
    mask: Tensor | None
    pick: Tensor
    targets: Tensor
    states: Tensor
    member: Tensor
    column: Tensor
    last: Tensor
    lengths: Tensor


def rows_of(examples: Sequence[Example]) -> list[PackedRow]:
    """Return the rows of examples, in the order of their first prompts."""
    by_prompt: dict[Any, tuple[VlmPrompt, list[int]]] = {}
    for number, example in enumerate(examples):
        by_prompt.setdefault(example.prompt.key, (example.prompt, []))[1].append(number)
    return [
        PackedRow(prompt, members, len(prompt.tokens) + sum(max(0, len(examples[m].tokens) - 1) for m in members))
        for prompt, members in by_prompt.values()
    ]


def split(rows: Sequence[PackedRow], *, max_tokens: int) -> list[list[PackedRow]]:
    """Return rows in micro-batches of at most ``max_tokens`` padded tokens, by length; a longer row is alone."""
    batches: list[list[PackedRow]] = []
    for row in sorted(rows, key=lambda row: -row.length):
        if batches and (len(batches[-1]) + 1) * batches[-1][0].length <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def pack(vlm: Vlm, rows: Sequence[PackedRow], examples: Sequence[Example]) -> Packed:
    """Return rows as tensors."""
    length = max(row.length for row in rows)
    shape = (len(rows), length)
    ids = np.full(shape, vlm.vocabulary.pad, dtype=np.int64)
    positions = np.zeros((3, *shape), dtype=np.int64)
    segments = np.full(shape, -1, dtype=np.int64)
    picks, targets, states, member, column = [], [], [], [], []
    shares = False
    for b, row in enumerate(rows):
        prompt = row.prompt
        end = len(prompt.tokens)
        ids[b, :end] = prompt.tokens
        positions[:, b, :end] = prompt.positions
        segments[b, :end] = 0
        last = b * length + end - 1
        segment = 0
        for m in row.members:
            tokens = examples[m].tokens
            inner = len(tokens) - 1
            if inner > 0:
                segment += 1
                ids[b, end : end + inner] = tokens[:-1]
                positions[:, b, end : end + inner] = prompt.next_position + np.arange(inner)
                segments[b, end : end + inner] = segment
            picks.append(np.concatenate([[last], b * length + end + np.arange(max(inner, 0))])[: len(tokens)])
            targets.append(tokens)
            states.append(examples[m].states)
            member.append(np.full(len(tokens), m))
            column.append(np.arange(len(tokens)))
            end += max(inner, 0)
        shares = shares or segment > 1
    pictures, at, take = _place(vlm, rows, length)
    return Packed(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        pictures,
        at,
        take,
        _shared_mask(torch.from_numpy(segments)) if shares else None,
        _joined(picks),
        _joined(targets),
        _joined(states),
        _joined(member),
        _joined(column),
        torch.tensor([b * length + len(row.prompt.tokens) - 1 for b, row in enumerate(rows)]),
        torch.tensor([len(row.prompt.tokens) for row in rows]),
    )


def hidden(vlm: Vlm, packed: Packed, attend: Any = None) -> Tensor:
    """Return the last hidden states of a pack, [B * L, D]."""
    trunk = vlm.trunk
    x, deep = trunk.embed(packed.ids, trunk.see_all(packed.pictures), packed.at, packed.take)
    rotary = trunk.rotary(x, packed.positions)
    return trunk.layers(x, rotary, mask=packed.mask, deep=deep, attend=attend).flatten(0, 1)


def score(vlm: Vlm, packed: Packed) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies [M] of a pack's reply tokens, as sampled, with gradient."""
    with vlm.computing():
        logits = vlm.trunk.logits(hidden(vlm, packed)[packed.pick])
    logprobs_MV, entropies = distribution(logits, vlm.allowed[packed.states], vlm.decoding.temperature)
    return logprobs_MV.gather(1, packed.targets[:, None])[:, 0], entropies


def distribution(logits_MV: Tensor, allowed_MV: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities [M, V] that replies are sampled from, and their entropies [M], nats."""
    scaled = logits_MV.float() if temperature == 1.0 else logits_MV.float() / temperature
    refused = ~allowed_MV
    logprobs = torch.log_softmax(scaled.masked_fill(refused, -torch.inf), dim=-1)
    finite = logprobs.masked_fill(refused, 0.0)
    return logprobs, -(logprobs.exp() * finite).sum(-1)


def _place(
    vlm: Vlm, rows: Sequence[PackedRow], length: int
) -> tuple[list[tuple[tuple[int, int], Tensor]], Tensor, Tensor]:
    """Return the distinct pictures by size, and the positions of their tokens."""
    by_grid: dict[tuple[int, int], dict[bytes, Any]] = {}
    for row in rows:
        for picture in row.prompt.pictures:
            by_grid.setdefault(picture.grid, {})[picture.key] = picture
    unit = vlm.rules.merge_size**2
    starts: dict[tuple[tuple[int, int], bytes], int] = {}
    pictures, total = [], 0
    for grid, group in by_grid.items():
        for key in group:
            starts[grid, key] = total
            total += grid[0] * grid[1] // unit
        pictures.append((grid, torch.from_numpy(np.stack([picture.patches for picture in group.values()]))))
    at, take = [], []
    for b, row in enumerate(rows):
        for picture, start in zip(row.prompt.pictures, row.prompt.image_starts, strict=True):
            count = np.arange(picture.grid[0] * picture.grid[1] // unit)
            at.append(b * length + start + count)
            take.append(starts[picture.grid, picture.key] + count)
    return pictures, _joined(at), _joined(take)


def _joined(parts: Sequence[Any]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.int64)) if parts else torch.zeros(0, dtype=torch.long)


def _shared_mask(segments_BL: Tensor) -> Tensor:
    """Return bool [B, 1, L, L]: a token attends to what precedes it in its prompt and its own reply."""
    length = segments_BL.shape[1]
    same = segments_BL[:, :, None] == segments_BL[:, None, :]
    prompt = segments_BL[:, None, :] == 0
    before = torch.ones(length, length, dtype=torch.bool).tril()
    return ((same | prompt) & before)[:, None]
