"""Turns as rows of tokens, in which several turns are scored at once; what they have in common is computed once.

While a conversation only grows, a turn's prompt and reply begin the prompt of the next turn. Then one row holds both,
and every reply is scored in place. All attempts of a group begin on the same screen. Both are prefixes that sequences
share, so that the turns of a batch form a tree of tokens, and a row is a part of it: a trunk, which attends as any
sequence does, and short branches, which attend to what precedes them.

    trunk    task screen0 | a1 a2 | screen1 | b1 b2 | screen2 | c1 c2     turns 0, 1 and 2
    branch   another reply to screen0: d1 d2 d3                           d2 sees: task screen0 d1

A trunk is as long as its last turn, so that a row needs no more memory than the longest turn. Rows follow each other
in a micro-batch, without padding. Log-probabilities and gradients are those of computing every turn alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.prompts import IntArray, VlmPrompt
from dartsim.real.vlm.trunk import Attend, Grid, attention, causal

MAX_BRANCH_TOKENS = 1_024
"""Most tokens of a row's branches. Their mask takes a byte for each of them and each token of the row."""


class Example(NamedTuple):
    """One turn to be scored: a prompt and its reply's tokens [n]."""

    prompt: VlmPrompt
    tokens: IntArray

    @property
    def length(self) -> int:
        """Tokens that are computed: nothing follows from the reply's last one."""
        return len(self.prompt.tokens) + max(0, len(self.tokens) - 1)


class Segment(NamedTuple):
    """Tokens of a row: ``start`` to ``stop`` of an example's prompt and reply, after segment ``parent`` (-1: none)."""

    example: int
    start: int
    stop: int
    parent: int


class PackedRow(NamedTuple):
    """Segments that are computed together.

    Attributes:
        segments: First those of the trunk, each of which follows the one before it; then the branches'.
        trunk: Tokens of the trunk.
        members: Examples that are scored, each with the segment that its last token is in.
        length: Tokens of all segments.
    """

    segments: list[Segment]
    trunk: int
    members: list[tuple[int, int]]
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
    """Consecutive rows of one shape, or one row with a mask, bool [tokens of branches, tokens of row]."""

    rows: int
    trunk: int
    mask: Tensor | None


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
        spans = [span if span.mask is None else span._replace(mask=_moved(span.mask, device)) for span in self.spans]
        return Packed(self.inputs.to(device), spans, *(_moved(value, device) for value in self[2:]))

    def attend(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend within rows, [1, H, L, head]: trunks causally, branches by their masks."""
        parts, end = [], 0
        for rows, trunk, mask in self.spans:
            width = trunk if mask is None else trunk + len(mask)
            start, end = end, end + rows * width
            rq, rk, rv = (x[0, :, start:end].view(x.shape[1], rows, width, -1).transpose(0, 1) for x in (q, k, v))
            mixed = causal(number, rq[:, :, :trunk], rk[:, :, :trunk], rv[:, :, :trunk])
            if mask is not None:
                mixed = torch.cat([mixed, attention(rq[:, :, trunk:], rk, rv, mask=mask)], dim=2)
            parts.append(mixed.transpose(0, 1).flatten(1, 2))
        return torch.cat(parts, dim=1)[None]


def rows_of(
    vlm: Vlm,
    examples: Sequence[Example],
    *,
    max_tokens: int | None = None,
    pack: Literal["trajectories", "turns"] = "trajectories",
) -> list[PackedRow]:
    """Return the rows of examples, in the order of their first examples.

    A sequence that leaves another one's path becomes a branch of its row if that costs less than computing again the
    prefix that they share: a branch of n tokens in a row of L attends to n * L pairs. The row's branches have at most
    ``MAX_BRANCH_TOKENS``, and the row at most ``max_tokens``. Otherwise the sequence begins a row.

    Args:
        vlm: The model, whose sizes say what attention costs.
        examples: Turns, in any order.
        max_tokens: Of a row; a longer turn is alone, or with others that it contains. None: no limit.
        pack: ``turns``: only turns with equal prompts share a row.
    """
    codes = _codes(examples)
    trees: dict[Any, _Node] = {}
    for number, example in enumerate(examples):
        tree = trees.setdefault(example.prompt.key if pack == "turns" else None, _Node(0, 0, 0))
        tree.insert(number, codes)
    limits = max_tokens or sum(example.length for example in examples), vlm.trunk.token_pairs
    rows = [row for tree in trees.values() for row in _rows(tree, *limits)]
    return sorted(rows, key=lambda row: min(member for member, _ in row.members))


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
    ids, positions, placed, spans = [], [], [], []
    picks, members = [], []
    end = 0
    for (trunk, branches), same in groupby(sorted(rows, key=_shape), key=_shape):
        alike = list(same)
        spans += [Span(1, trunk, _mask(row)) for row in alike] if branches else [Span(len(alike), trunk, None)]
        for row in alike:
            starts = []
            for segment in row.segments:
                example = examples[segment.example]
                starts.append(end - segment.start)
                tokens, places = _sequence(example, segment.start, segment.stop)
                ids.append(tokens)
                positions.append(places)
                placed += [
                    (picture, at + starts[-1])
                    for picture, at in zip(example.prompt.pictures, example.prompt.image_starts, strict=True)
                    if segment.start <= at < segment.stop
                ]
                end += segment.stop - segment.start
            for member, last in row.members:
                picks.append(_places(row, last, starts, examples[member]))
                members.append(member)
    replies = [examples[member] for member in members]
    pictures, at, take = picture_tokens(vlm, placed)
    return Packed(
        Inputs(joined(ids)[None], torch.from_numpy(np.concatenate(positions, axis=1))[:, None], pictures, at, take),
        spans,
        joined(picks),
        joined([reply.tokens for reply in replies]),
        joined([np.full(len(reply.tokens), member) for member, reply in zip(members, replies, strict=True)]),
        joined([np.arange(len(reply.tokens)) for reply in replies]),
    )


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


@dataclass(slots=True)
class _Node:
    """Tokens ``start`` to ``stop`` of an example's sequence, which its children continue, by their first codes.

    ``members`` are the examples whose sequences end here, ``reach`` is the end of the longest one below, and ``size``
    the tokens here and below.
    """

    example: int
    start: int
    stop: int
    children: dict[int, _Node] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    reach: int = 0
    size: int = 0

    def insert(self, number: int, codes: Sequence[IntArray]) -> None:
        """Add an example's sequence below."""
        code, node = codes[number], self
        while node.stop < len(code):
            at = node.stop
            child = node.children.get(int(code[at]))
            if child is None:
                child = node.children[int(code[at])] = _Node(number, at, len(code))
            shared = _equal(codes[child.example][at : child.stop], code[at:])
            if at + shared < min(child.stop, len(code)):
                child.cut(at + shared, codes)
            node = child
        node.members.append(number)

    def cut(self, at: int, codes: Sequence[IntArray]) -> None:
        """Let the tokens from a position on be a child."""
        rest = _Node(self.example, at, self.stop, self.children, [m for m in self.members if len(codes[m]) > at])
        self.children = {int(codes[self.example][at]): rest}
        self.members = [m for m in self.members if len(codes[m]) <= at]
        self.stop = at

    def measure(self) -> None:
        for child in self.children.values():
            child.measure()
        self.reach = max((child.reach for child in self.children.values()), default=self.stop)
        self.size = self.stop - self.start + sum(child.size for child in self.children.values())


def _codes(examples: Sequence[Example]) -> list[IntArray]:
    """Return each example's sequence [length], with a picture's number (below 0) in place of its tokens."""
    numbers: dict[tuple[Grid, bytes], int] = {}
    codes = []
    for example in examples:
        prompt = example.prompt
        code = np.concatenate([prompt.tokens, example.tokens[:-1]])
        image = prompt.tokens[prompt.image_starts[0]] if prompt.image_starts else None
        for picture, start in zip(prompt.pictures, prompt.image_starts, strict=True):
            number = numbers.setdefault((picture.grid, picture.key), len(numbers))
            stop = start + int(np.argmax(prompt.tokens[start:] != image))
            code[start:stop] = -1 - number
        codes.append(code)
    return codes


def _equal(one: IntArray, other: IntArray) -> int:
    """Return the length of the prefix that two sequences share."""
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    return int(differ.argmax()) if differ.any() else length


def _rows(tree: _Node, max_tokens: int, token_pairs: float) -> Iterator[PackedRow]:
    """Yield the rows of a tree; a row that leaves another one begins with what they share."""
    tree.measure()
    pending = [([tree], list(tree.children.values()))]
    while pending:
        path, nodes = pending.pop()
        path, shared = path.copy(), len(path) - 1
        siblings_at: dict[int, list[_Node]] = {}
        while nodes:
            path.append(max(nodes, key=lambda node: node.reach))
            siblings_at[len(path) - 1] = [node for node in nodes if node is not path[-1]]
            nodes = list(path[-1].children.values())
        row = _Row(path[1:], shared)
        for depth in reversed(siblings_at):
            parent_segment, cut = depth - 2, []  # the root has no segment
            for node in siblings_at[depth]:
                length = row.length + node.size
                cheap = node.size * length <= node.start * token_pairs
                if cheap and length - row.trunk <= MAX_BRANCH_TOKENS and length <= max_tokens:
                    row.add(node, parent_segment)
                else:
                    cut.append(node)
            if cut:
                pending.append((path[:depth], cut))
        yield PackedRow(row.segments, row.trunk, row.members, row.length)


class _Row:
    """A row being built of a path of a tree, whose first ``shared`` nodes another row scores."""

    def __init__(self, path: Sequence[_Node], shared: int) -> None:
        self.segments: list[Segment] = []
        self.members: list[tuple[int, int]] = []
        for number, node in enumerate(path):
            self._add(node, number - 1, score=number >= shared)
        self.trunk = self.length = path[-1].stop

    def add(self, node: _Node, parent: int) -> None:
        """Add a node and those below it as a branch."""
        number = len(self.segments)
        self._add(node, parent, score=True)
        self.length += node.stop - node.start
        for child in node.children.values():
            self.add(child, number)

    def _add(self, node: _Node, parent: int, *, score: bool) -> None:
        if score:
            self.members += [(member, len(self.segments)) for member in node.members]
        self.segments.append(Segment(node.example, node.start, node.stop, parent))


def _shape(row: PackedRow) -> tuple[int, int]:
    return row.trunk, row.length - row.trunk


def _mask(row: PackedRow) -> Tensor:
    """Return bool [branches, row]: a branch's token attends to those before it in its sequence, and to itself."""
    trunk = row.trunk
    mask = np.zeros((row.length - trunk, row.length), dtype=bool)
    ends = np.cumsum([segment.stop - segment.start for segment in row.segments])
    for segment, end in zip(row.segments, ends, strict=True):
        if end <= trunk:
            continue
        start = end - (segment.stop - segment.start)
        own = mask[start - trunk : end - trunk]
        if ends[segment.parent] <= trunk:
            own[:, : segment.start] = True
        else:
            own[:] = mask[ends[segment.parent] - 1 - trunk]
        own[:, start:end] = np.tri(end - start, dtype=bool)
    return torch.from_numpy(mask)


def _sequence(example: Example, start: int, stop: int) -> tuple[IntArray, IntArray]:
    """Return some tokens of an example's prompt and reply, and their positions [3, stop - start]."""
    prompt = example.prompt
    length = len(prompt.tokens)
    first, last = max(start - length, 0), max(stop - length, 0)
    after = np.broadcast_to(prompt.next_position + np.arange(first, last), (3, last - first))
    tokens = np.concatenate([prompt.tokens[start:stop], example.tokens[first:last]])
    return tokens, np.concatenate([prompt.positions[:, start:stop], after], axis=1)


def _places(row: PackedRow, segment: int, starts: Sequence[int], example: Example) -> IntArray:
    """Return where the tokens are that each token of an example's reply follows.

    Args:
        row: Its row.
        segment: The segment with the last of them.
        starts: Where each segment's example has, or would have, its first token.
        example: The example.
    """
    first = len(example.prompt.tokens) - 1
    stop = first + len(example.tokens)
    parts = [np.zeros(0, dtype=np.int64)]
    while stop > first:
        low = max(first, row.segments[segment].start)
        parts.insert(1, np.arange(low, stop) + starts[segment])
        segment, stop = row.segments[segment].parent, low
    return np.concatenate(parts)


def joined(parts: Sequence[Any]) -> Tensor:
    """Return the numbers of all parts, one after the other."""
    return torch.from_numpy(np.concatenate(parts).astype(np.int64)) if parts else torch.zeros(0, dtype=torch.long)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, non_blocking=True)
