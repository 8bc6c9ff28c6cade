"""Requests as prompts: the instruction, the turns so far with the newest screenshots, the present screenshot.

Worker and learner both use ``PromptBuilder``, so that they condition on the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dartsim.core.types import Observation, Turn
from dartsim.real.vlm.config import PromptStyle
from dartsim.real.vlm.conversation import conversation, earlier_reply
from dartsim.real.vlm.images import Picture, Pictures
from dartsim.real.vlm.vocabulary import Parts, Vocabulary

IntArray = np.ndarray[Any, np.dtype[np.int64]]


class VlmPrompt(NamedTuple):
    """A model's input for one turn.

    ``tokens`` is [L]; ``positions`` [3, L] are time, height and width of multimodal rotary positions;
    ``next_position`` is that of the reply's first token; ``image_starts`` are the first positions of the pictures.
    """

    tokens: IntArray
    positions: IntArray
    next_position: int
    pictures: tuple[Picture, ...]
    image_starts: tuple[int, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal prompts."""
        return (self.tokens.tobytes(), *(picture.key for picture in self.pictures))


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
        self._positions: list[IntArray] = []
        self._next = 0
        self._pictures: list[Picture] = []
        self._starts: list[int] = []

    def _text(self, tokens: Sequence[int]) -> None:
        self._tokens.extend(tokens)
        count = len(tokens)
        self._positions.append(np.arange(self._next, self._next + count)[None].repeat(3, axis=0))
        self._next += count

    def _open(self, role: str) -> list[int]:
        return [self._vocabulary.start, *self._vocabulary.encode(f"{role}\n")]

    def _close(self) -> list[int]:
        return [self._vocabulary.end, *self._vocabulary.encode("\n")]

    def message(self, role: str, parts: Parts, picture: Picture | None = None) -> None:
        words = self._vocabulary.spell(parts)
        self._text(words if self._terse else [*self._open(role), *words])
        if picture is not None:
            self._image(picture)
        if not self._terse:
            self._text(self._close())

    def _image(self, picture: Picture) -> None:
        vocabulary = self._vocabulary
        self._text([vocabulary.vision_start])
        rows, columns = picture.grid[0] // self._merge, picture.grid[1] // self._merge
        self._starts.append(len(self._tokens))
        self._pictures.append(picture)
        self._tokens.extend([vocabulary.image] * (rows * columns))
        grid = np.indices((1, rows, columns)).reshape(3, -1) + self._next
        self._positions.append(grid)
        self._next += max(rows, columns)
        self._text([vocabulary.vision_end])

    def reply(self, tokens: Sequence[int]) -> None:
        if self._terse:
            self._text([self._vocabulary.start, *tokens, self._vocabulary.end])
        else:
            self._text([*self._open("assistant"), *tokens, *self._close()])

    def finish(self) -> VlmPrompt:
        self._text([self._vocabulary.start] if self._terse else self._open("assistant"))
        return VlmPrompt(
            np.asarray(self._tokens, dtype=np.int64),
            np.concatenate(self._positions, axis=1, dtype=np.int64),
            self._next,
            tuple(self._pictures),
            tuple(self._starts),
        )
