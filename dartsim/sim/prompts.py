"""The length of each turn's prompt, and how much of it an engine still has cached from the turn before.

A GUI agent's prompt is a system text with the instruction, then the turns so far, each a screenshot and the reply to
it, then the newest screenshot. Screenshots are expensive, so only the newest few are kept; dropping one changes the
prompt from that place on, and everything after it must be prefilled again. So the way of dropping them determines the
value of a prefix cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise, takewhile
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from dartsim.rollout.history import first_reply, num_images

BLOCK_TOKENS = 16
"""A prefix cache holds whole blocks of this many tokens (vLLM's default)."""


class PromptSize(NamedTuple):
    """A turn's prompt: the first three arguments of ``FluidEngine.submit``."""

    tokens: int
    cached_tokens: int
    images: int


class TrainingSequence(NamedTuple):
    """A sequence that a learner computes: ``tokens`` with ``images`` screenshots, to train ``turns`` turns."""

    tokens: int
    images: int
    turns: int


Segment = tuple[Literal["system", "image", "reply"], int]


@dataclass(frozen=True, kw_only=True)
class PromptModel:
    """Prompt lengths and prefix hits by turn.

    The defaults reproduce the prompts measured in DART's runs, 3,036 / 5,833 / 8,650 / 11,437 tokens with one to four
    images, to within 20 tokens. Every reply counts with the mean length.

    Attributes:
        system_tokens: System text and instruction: the measured first prompt minus its image.
        image_tokens: One 1920x1080 screenshot after Qwen2.5-VL's resize to 1932x1092 (69 x 39 tokens); 0: no image.
        reply_tokens: Mean reply (measured, n = 496).
        turn_tokens: Chat template around a reply and an image; the measured prompts grow by 2,800 a turn.
        max_images: Maximum screenshots in a prompt (DART: 5).
        max_texts: Maximum earlier replies in a prompt (DART: 35).
        images_after_cut: None: the oldest screenshot is dropped at every turn once there are ``max_images`` (DART).
            Otherwise they grow to ``max_images`` and are then cut to this many, and replies likewise.
        num_turns: Number of turns in the tables.
    """

    system_tokens: int = 345
    image_tokens: int = 2_691
    reply_tokens: int = 104
    turn_tokens: int = 5
    max_images: int = 5
    max_texts: int = 35
    images_after_cut: int | None = None
    num_turns: int = 100

    def __post_init__(self) -> None:
        if self.images_after_cut is not None and not 1 <= self.images_after_cut <= self.max_images:
            raise ValueError(
                f"images_after_cut must be in [1, max_images={self.max_images}], got {self.images_after_cut}"
            )
        if self.max_texts < 0 or self.num_turns < 1:
            raise ValueError(f"max_texts must be >= 0 and num_turns >= 1, got {self.max_texts} and {self.num_turns}")

    def num_images(self, turn: int) -> int:
        """Return the number of screenshots in the prompt of a turn (from 0)."""
        return num_images(turn, max_images=self.max_images, after_cut=self.images_after_cut)

    def segments(self, turn: int) -> list[Segment]:
        """Return the parts of a turn's prompt in order, each with its turn."""
        first_image = turn + 1 - self.num_images(turn)
        first_text = first_reply(
            turn, max_images=self.max_images, max_texts=self.max_texts, after_cut=self.images_after_cut
        )
        parts: list[Segment] = [("system", 0)]
        for past in range(turn + 1):
            if past >= first_image:
                parts.append(("image", past))
            if first_text <= past < turn:
                parts.append(("reply", past))
        return parts

    def training_sequences(self, num_turns: int, *, packed: bool) -> list[TrainingSequence]:
        """Return the sequences that train all turns of a trajectory, as in ``dartsim.real.vlm.packing``.

        ``packed``: turns share a sequence while each prompt begins with the previous prompt and reply. The token count
        is then exact if ``max_texts`` is at least ``max_images - 1``; otherwise the packer may compute fewer.
        """
        shared = self._extended if packed else frozenset()
        last = [turn for turn in range(num_turns) if turn == num_turns - 1 or turn not in shared]
        tokens = (self.prompt(turn, warm=False).tokens + self.reply_tokens for turn in last)
        turns = (turn - before for before, turn in pairwise([-1, *last]))
        return list(map(TrainingSequence, tokens, map(self.num_images, last), turns))

    @cached_property
    def _extended(self) -> frozenset[int]:
        """The turns after which the prompt begins with their prompt and reply."""
        parts = [self.segments(turn) for turn in range(self.num_turns)]
        pairs = enumerate(pairwise(parts))
        return frozenset(turn for turn, (this, after) in pairs if after[: len(this) + 1] == [*this, ("reply", turn)])

    def _tokens(self, parts: list[Segment]) -> int:
        length = {
            "system": self.system_tokens,
            "image": self.image_tokens,
            "reply": self.reply_tokens + self.turn_tokens,
        }
        return sum(length[kind] for kind, _ in parts)

    @cached_property
    def cold(self) -> tuple[PromptSize, ...]:
        """The prompt of each turn on an engine without the session in its cache."""
        return tuple(
            PromptSize(self._tokens(self.segments(turn)), 0, self.num_images(turn) if self.image_tokens else 0)
            for turn in range(self.num_turns)
        )

    @cached_property
    def warm(self) -> tuple[PromptSize, ...]:
        """The prompt of each turn on an engine that still has the turn before in its cache."""
        return tuple(self._warm(turn) for turn in range(self.num_turns))

    def _warm(self, turn: int) -> PromptSize:
        """Return a turn's prompt, with its prefix shared with the previous prompt and reply cached, in whole blocks."""
        if turn == 0:
            return self.cold[0]
        before: list[Segment] = [*self.segments(turn - 1), ("reply", turn - 1)]
        pairs = zip(before, self.segments(turn), strict=False)
        shared = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        tokens = self._tokens(shared)
        if shared[-1] == before[-1]:
            tokens -= self.turn_tokens + 1  # the reply's last token and the template after it are not cached
        cold = self.cold[turn]
        # A screenshot whose keys and values are recomputed is encoded again: vLLM's encoder cache holds about three.
        images = cold.images - sum(kind == "image" for kind, _ in shared)
        return PromptSize(cold.tokens, tokens // BLOCK_TOKENS * BLOCK_TOKENS, images)

    def prompt(self, turn: int, *, warm: bool) -> PromptSize:
        """Return the prompt of a turn (from 0); turns beyond the tables are like the last one."""
        table = self.warm if warm else self.cold
        return table[turn] if turn < self.num_turns else table[-1]


MEAN_REPLY_TOKENS, SD_REPLY_TOKENS, MAX_REPLY_TOKENS = 104.0, 20.0, 157
"""DART's measured replies (n = 496): mean 104, median 103.5, 5 % quantile 73, 95 % quantile 139, longest 157. A gamma
distribution with that mean and deviation has 73 and 139 at these quantiles, and a median of 103."""


def reply_lengths(rng: Generator, block: int = 1_024) -> Callable[[], int]:
    """Return a function that draws the length of a reply; it takes ``block`` of them from ``rng`` at a time."""
    shape = (MEAN_REPLY_TOKENS / SD_REPLY_TOKENS) ** 2
    scale = MEAN_REPLY_TOKENS / shape

    def blocks() -> Iterator[array[int]]:
        while True:
            lengths = rng.gamma(shape, scale, block).round().clip(1, MAX_REPLY_TOKENS).astype(np.uint16)[::-1].tobytes()
            yield array("H", lengths)  # the last draw first, so that recorded runs keep their draws

    draw: Callable[[], int] = chain.from_iterable(blocks()).__next__
    return draw
