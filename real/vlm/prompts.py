"""Requests as prompts: the instruction, the turns so far with the newest screenshots, the present screenshot.

Worker and learner both use ``PromptBuilder``, so that they condition on the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dartsim.core.types import Observation, Turn
from dartsim.real.vlm.config import PromptStyle
from dartsim.real.vlm.conversation import conversation, earlier_reply
from dartsim.real.vlm.images import Picture, Pictures
from dartsim.real.vlm.vocabulary import Parts, Vocabulary

IntArray = np.ndarray[Any, np.dtype[np.int64]]


class Expanded(NamedTuple):
    """A prompt with an image token for every merged patch.

    ``tokens`` is [L]; ``positions`` [3, L] are time, height and width of multimodal rotary positions;
    ``next_position`` is that of the reply's first token; ``image_starts`` are the first positions of the pictures.
    """

    tokens: IntArray
    positions: IntArray
    next_position: int
    image_starts: tuple[int, ...]


@dataclass(frozen=True)
class VlmPrompt:
    """A model's input for one turn.

    An engine reads ``short_tokens``, with one image token a picture. A learner needs them expanded, which costs more
    than the rest of a prompt and is done when it is first asked for.

    Attributes:
        short_tokens: The tokens, one for each picture.
        pictures: Its pictures in their order.
        image: The image token.
        merge: Patches on each side that become one token.
    """

    short_tokens: tuple[int, ...]
    pictures: tuple[Picture, ...]
    image: int
    merge: int

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal prompts."""
        return self.short_tokens, *(picture.key for picture in self.pictures)

    @property
    def length(self) -> int:
        """Number of its tokens, expanded."""
        return len(self.short_tokens) + sum(rows * columns - 1 for rows, columns in self._grids)

    @property
    def tokens(self) -> IntArray:
        return self._expanded.tokens

    @property
    def positions(self) -> IntArray:
        return self._expanded.positions

    @property
    def next_position(self) -> int:
        return self._expanded.next_position

    @property
    def image_starts(self) -> tuple[int, ...]:
        return self._expanded.image_starts

    @property
    def _grids(self) -> list[tuple[int, int]]:
        return [(picture.grid[0] // self.merge, picture.grid[1] // self.merge) for picture in self.pictures]

    @cached_property
    def _expanded(self) -> Expanded:
        short = np.array(self.short_tokens, dtype=np.int64)
        at_images, grids = np.flatnonzero(short == self.image), self._grids
        sizes = np.ones(len(short), dtype=np.int64)
        sizes[at_images] = [rows * columns for rows, columns in grids]
        steps = np.ones(len(short), dtype=np.int64)
        steps[at_images] = [max(grid) for grid in grids]
        first = np.cumsum(steps) - steps
        starts = (np.cumsum(sizes) - sizes)[at_images].tolist()
        positions = np.repeat(first, sizes)[None].repeat(3, axis=0)
        for start, (rows, columns) in zip(starts, grids, strict=True):
            positions[:, start : start + rows * columns] += np.indices((1, rows, columns)).reshape(3, -1)
        return Expanded(np.repeat(short, sizes), positions, int(steps.sum()), tuple(starts))


class PromptBuilder:
    """Builds prompts in a style."""

    def __init__(self, vocabulary: Vocabulary, pictures: Pictures, style: PromptStyle) -> None:
        self.vocabulary = vocabulary
        self.pictures = pictures
        self.style = style
        self._merge = pictures.rules.merge_size

    def build(self, observation: Observation, history: Sequence[Turn]) -> VlmPrompt:
        """Return the prompt for an observation after the turns before it, oldest first."""
        draft = _Draft(self.vocabulary, self._merge, terse=self.style.terse)
        for role, parts, screenshot, turn in conversation(self.style, observation, history):
            if turn is not None:
                draft.reply(self.reply_tokens(turn))
            else:
                draft.message(role, parts, None if screenshot is None else self.pictures(screenshot))
        return draft.finish()

    def reply_tokens(self, turn: Turn) -> Sequence[int]:
        """Return a past reply's tokens without its end token: the sampled ones, if they spell what is shown of it."""
        reply = turn.reply
        if reply.tokens is None:
            return self.vocabulary.spell(earlier_reply(self.style, reply.action))
        sampled = [int(token) for token in reply.tokens if token != self.vocabulary.end]
        if not self.style.box_tokens:
            return sampled
        written = self.vocabulary.decode(sampled)
        shown = earlier_reply(self.style, written)
        return sampled if "".join(shown) == written else self.vocabulary.spell(shown)


class _Draft:
    """A prompt being written."""

    def __init__(self, vocabulary: Vocabulary, merge: int, *, terse: bool) -> None:
        self._vocabulary = vocabulary
        self._merge = merge
        self._terse = terse
        self._tokens: list[int] = []
        self._pictures: list[Picture] = []

    def _open(self, role: str) -> list[int]:
        return [self._vocabulary.start, *self._vocabulary.encode(f"{role}\n")]

    def _close(self) -> list[int]:
        return [self._vocabulary.end, *self._vocabulary.encode("\n")]

    def message(self, role: str, parts: Parts, picture: Picture | None = None) -> None:
        vocabulary = self._vocabulary
        if not self._terse:
            self._tokens += self._open(role)
        self._tokens += vocabulary.spell(parts)
        if picture is not None:
            self._pictures.append(picture)
            self._tokens += vocabulary.vision_start, vocabulary.image, vocabulary.vision_end
        if not self._terse:
            self._tokens += self._close()

    def reply(self, tokens: Sequence[int]) -> None:
        if self._terse:
            self._tokens += [self._vocabulary.start, *tokens, self._vocabulary.end]
        else:
            self._tokens += [*self._open("assistant"), *tokens, *self._close()]

    def finish(self) -> VlmPrompt:
        self._tokens += [self._vocabulary.start] if self._terse else self._open("assistant")
        return VlmPrompt(tuple(self._tokens), tuple(self._pictures), self._vocabulary.image, self._merge)
