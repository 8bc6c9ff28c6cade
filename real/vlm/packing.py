"""Packs turns into rows of tokens, so that common parts of several turns are computed once.

While a conversation only grows, a turn's prompt and reply begin the prompt of the next turn. Then one row holds both,
and every reply is scored in place:

    task screen0 | a1 a2 | screen1 | b1 b2 | screen2 | c1 c2     turns 0, 1 and 2

A row is as long as its last turn, so that it needs no more memory than that. Rows follow each other in a micro-batch,
without padding. Log-probabilities and gradients are those of computing every turn alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.prompts import IntArray, VlmPrompt
from dartsim.real.vlm.trunk import Attend, Grid, causal


class Example(NamedTuple):
    """One turn to be scored: a prompt and its reply's tokens [n]."""

    prompt: VlmPrompt
    tokens: IntArray

    @property
    def length(self) -> int:
        """Number of computed tokens, without the reply's last one, which predicts nothing."""
        return len(self.prompt.tokens) + max(0, len(self.tokens) - 1)


class PackedRow(NamedTuple):
    """Turns that are computed together: ``members`` begin as the longest of them, ``example``, of ``length`` tokens."""

    example: int
    members: list[int]
    length: int


class Inputs(NamedTuple):
    """What a model computes with: tokens [B, L], positions [3, B, L], pictures by size, and where they are.

    Token ``take`` of all pictures is token ``at`` of the flattened [B * L].
    """

    ids: Tensor
    positions: Tensor
    pictures: list[tuple[Grid, Tensor]]
    at: Tensor
    take: Tensor

    def to(self, device: torch.device) -> Inputs:
        ids, positions, at, take = (_moved(value, device) for value in (self.ids, self.positions, self.at, self.take))
        return Inputs(ids, positions, [(grid, _moved(patches, device)) for grid, patches in self.pictures], at, take)


class Span(NamedTuple):
    """Consecutive rows of one length."""

    rows: int
    length: int


class Packed(NamedTuple):
    """Rows as tensors, one after the other in a batch of one; M counts the reply tokens of all of them.

    ``pick`` [M] is the position with the logits of a reply token, ``targets`` [M] the token, and ``member`` and
    ``column`` [M] its example and position there.
    """

    inputs: Inputs
    spans: list[Span]
    pick: Tensor
    targets: Tensor
    member: Tensor
    column: Tensor

    def to(self, device: torch.device) -> Packed:
        return Packed(self.inputs.to(device), self.spans, *(_moved(value, device) for value in self[2:]))

    def attend(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend causally within rows, [1, H, L, head]."""
        parts, end = [], 0
        for rows, length in self.spans:
            start, end = end, end + rows * length
            rq, rk, rv = (x[0, :, start:end].view(x.shape[1], rows, length, -1).transpose(0, 1) for x in (q, k, v))
            parts.append(causal(number, rq, rk, rv).transpose(0, 1).flatten(1, 2))
        return torch.cat(parts, dim=1)[None]


def rows_of(examples: Sequence[Example], *, pack: Literal["trajectories", "turns"] = "trajectories") -> list[PackedRow]:
    """Return the rows of examples, in the order of their first examples.

    With ``pack = "turns"`` only turns with equal prompts share a row.
    """
    codes = _codes(examples)
    rows: dict[Any, list[tuple[bytes, PackedRow]]] = {}
    for number in sorted(range(len(examples)), key=lambda number: -len(codes[number])):
        example = examples[number]
        longer = rows.setdefault(example.prompt.key if pack == "turns" else None, [])
        members = next((row.members for code, row in longer if code.startswith(codes[number])), None)
        if members is None:
            longer.append((codes[number], PackedRow(number, [number], example.length)))
        else:
            members.append(number)
    found = [row._replace(members=sorted(row.members)) for alike in rows.values() for _, row in alike]
    return sorted(found, key=lambda row: row.members[0])


def split(rows: Sequence[PackedRow], *, max_tokens: int, ranks: int = 1) -> list[list[PackedRow]]:
    """Return rows, in their order, in micro-batches of at most ``max_tokens``; a longer row is alone.

    They are as many as the tokens need, and a multiple of ``ranks`` where there are enough rows; and as equal as that
    allows. Neighbors, which show the same screenshots, stay together.
    """

    def filled(capacity: int) -> list[list[PackedRow]]:
        batches: list[list[PackedRow]] = []
        room = 0
        for row in rows:
            room -= row.length
            if room < 0 or not batches:
                batches.append([])
                room = capacity - row.length
            batches[-1].append(row)
        return batches

    count = ceil(len(filled(max_tokens)) / ranks) * ranks
    return filled(bisect_left(range(max_tokens), True, key=lambda capacity: len(filled(capacity)) <= count))


def pack(vlm: Vlm, rows: Sequence[PackedRow], examples: Sequence[Example]) -> Packed:
    """Return rows as tensors."""
    ids, positions, spans, picks = [], [], [], []
    placed: list[tuple[Picture, int]] = []
    members: list[int] = []
    start = 0
    for length, same in groupby(sorted(rows, key=_length), key=_length):
        alike = list(same)
        spans.append(Span(len(alike), length))
        for row in alike:
            prompt, tokens = examples[row.example]
            after = prompt.next_position + np.arange(length - len(prompt.tokens))
            ids += [prompt.tokens, tokens[:-1]]
            positions += [prompt.positions, np.broadcast_to(after, (3, len(after)))]
            starts = (start + at for at in prompt.image_starts)
            placed += zip(prompt.pictures, starts, strict=True)
            for member in row.members:
                first = start + len(examples[member].prompt.tokens) - 1
                picks.append(np.arange(first, first + len(examples[member].tokens)))
            members += row.members
            start += length
    replies = [examples[member].tokens for member in members]
    pictures, at, take = picture_tokens(vlm, placed)
    return Packed(
        Inputs(joined(ids)[None], torch.from_numpy(np.concatenate(positions, axis=1))[:, None], pictures, at, take),
        spans,
        joined(picks),
        joined(replies),
        joined([np.full(len(reply), member) for member, reply in zip(members, replies, strict=True)]),
        joined([np.arange(len(reply)) for reply in replies]),
    )


def _length(row: PackedRow) -> int:
    return row.length


def picture_tokens(vlm: Vlm, placed: Sequence[tuple[Picture, int]]) -> tuple[list[tuple[Grid, Tensor]], Tensor, Tensor]:
    """Return the distinct pictures by size, and where their tokens are and come from, as in ``Inputs``.

    Args:
        vlm: The model.
        placed: Pictures, each with the position of its first token; equal ones are taken once.
    """
    by_grid: dict[Grid, dict[bytes, Picture]] = {}
    for picture, _ in placed:
        by_grid.setdefault(picture.grid, {})[picture.key] = picture
    unit = vlm.rules.merge_size**2
    starts: dict[tuple[Grid, bytes], int] = {}
    pictures, total = [], 0
    for grid, group in by_grid.items():
        for key in group:
            starts[grid, key] = total
            total += grid[0] * grid[1] // unit
        pictures.append((grid, torch.from_numpy(np.stack([picture.patches for picture in group.values()]))))
    counts = [np.arange(picture.grid[0] * picture.grid[1] // unit) for picture, _ in placed]
    at = [start + count for (_, start), count in zip(placed, counts, strict=True)]
    take = [starts[picture.grid, picture.key] + count for (picture, _), count in zip(placed, counts, strict=True)]
    return pictures, joined(at), joined(take)


def hidden(vlm: Vlm, inputs: Inputs, attend: Attend = causal) -> Tensor:
    """Return the last hidden states, [B * L, D]."""
    trunk = vlm.trunk
    x, deep = trunk.embed(inputs.ids, trunk.see_all(inputs.pictures), inputs.at, inputs.take)
    return trunk.layers(x, trunk.rotary(x, inputs.positions), attend, deep=deep).flatten(0, 1)


def score(vlm: Vlm, packed: Packed) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies [M] of a pack's reply tokens, as sampled, with gradient."""
    logits = vlm.trunk.logits(hidden(vlm, packed.inputs, packed.attend)[packed.pick])
    logprobs_MV, entropies = distribution(logits, vlm.allowed, vlm.decoding.temperature)
    return logprobs_MV.gather(1, packed.targets[:, None])[:, 0], entropies


def distribution(logits_MV: Tensor, allowed_V: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities [M, V] that replies are sampled from, and their entropies [M], nats."""
    scaled = logits_MV.float() if temperature == 1.0 else logits_MV.float() / temperature
    refused = ~allowed_V
    logprobs = torch.log_softmax(scaled.masked_fill(refused, -torch.inf), dim=-1)
    finite = logprobs.masked_fill(refused, 0.0)
    return logprobs, -(logprobs.exp() * finite).sum(-1)


def _codes(examples: Sequence[Example]) -> list[bytes]:
    """Return each example's sequence, with a picture's number (below 0) in place of its tokens."""
    numbers: dict[tuple[Grid, bytes], int] = {}
    codes = []
    for example in examples:
        prompt = example.prompt
        code = np.concatenate([prompt.tokens, example.tokens[:-1]]).astype(np.int64)
        image = prompt.tokens[prompt.image_starts[0]] if prompt.image_starts else None
        for picture, start in zip(prompt.pictures, prompt.image_starts, strict=True):
            number = numbers.setdefault((picture.grid, picture.key), len(numbers))
            stop = start + int(np.argmax(prompt.tokens[start:] != image))
            code[start:stop] = -1 - number
        codes.append(code.tobytes())
    return codes


def joined(parts: Sequence[Any]) -> Tensor:
    """Return the numbers of all parts, one after the other."""
    return torch.from_numpy(np.concatenate(parts).astype(np.int64)) if parts else torch.zeros(0, dtype=torch.long)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, non_blocking=True)
