"""The cluster model counts the tokens that the packer computes, exactly where screenshots are of real sizes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.types import Observation, Reply, Turn  # noqa: E402
from dartsim.real.vlm import PromptStyle, build, tiny  # noqa: E402
from dartsim.real.vlm.packing import Example, rows_of  # noqa: E402
from dartsim.real.vlm.prompts import PromptBuilder  # noqa: E402
from dartsim.sim.learner import UpdateTokens  # noqa: E402
from dartsim.sim.prompts import PromptModel  # noqa: E402

FIRST_TOKEN = 290
"""Some token of text."""
SMALL, LARGE = 280, 924
"""Pixels of a screen's side: 100 and 1,089 tokens."""


@cache
def model():
    torch.set_num_threads(1)
    return build(tiny())


@cache
def screen(number: int, side: int):
    return np.full((side, side, 3), number % 256, dtype=np.uint8)


def attempt(number: int, length: int, side: int) -> list[Turn]:
    """Return the turns of an attempt whose first screen is that of all others; its replies are its own."""
    tokens = np.array([FIRST_TOKEN + number, FIRST_TOKEN, model().vocabulary.end], dtype=np.int64)
    reply = Reply("", 0, 0, 0, 0, len(tokens), tokens=tokens)
    return [
        Turn(Observation(screen(100 * number + turn if turn else 0, side), "do it"), reply) for turn in range(length)
    ]


def computed(style: PromptStyle, attempts: list[list[Turn]], pack) -> int:
    """Return the tokens of the rows of attempts."""
    builder = PromptBuilder(model().vocabulary, model().prompts.pictures, style)
    examples = [
        Example(builder.build(turn.observation, turns[:number]), turn.reply.tokens)
        for turns in attempts
        for number, turn in enumerate(turns)
    ]
    return sum(row.length for row in rows_of(examples, pack=pack))


def sizes(style: PromptStyle, side: int) -> dict[str, int]:
    """Return the tokens of a style's system text, screenshot and reply, each with the marks around it."""
    style = replace(style, max_images=1, max_texts=0, images_after_cut=None)
    builder = PromptBuilder(model().vocabulary, model().prompts.pictures, replace(style, max_texts=1))
    one, two = attempt(1, 2, side)
    first = len(builder.build(one.observation, []).tokens)
    texts = len(builder.build(two.observation, [one]).tokens) - first
    builder = PromptBuilder(model().vocabulary, model().prompts.pictures, replace(style, max_images=2))
    image = len(builder.build(two.observation, [one]).tokens) - first
    reply = len(one.reply.tokens) - 1
    return {
        "system_tokens": first - image,
        "image_tokens": image,
        "reply_tokens": reply,
        "turn_tokens": texts - reply,
    }


@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=2),
    most=st.integers(1, 5),
    cut=st.none() | st.integers(1, 5),
    texts=st.integers(1, 14),
    terse=st.booleans(),
    side=st.sampled_from([SMALL, LARGE]),
)
@example(lengths=[4], most=4, cut=None, texts=1, terse=False, side=SMALL)
@example(lengths=[4], most=4, cut=None, texts=3, terse=False, side=LARGE)
@example(lengths=[5], most=5, cut=2, texts=3, terse=False, side=LARGE)  # the first two turns share
def test_the_cluster_model_counts_what_the_packer_computes(lengths, most, cut, texts, terse, side):
    style = PromptStyle(
        system="", max_images=most, images_after_cut=cut and min(cut, most), max_texts=texts, terse=terse
    )
    after_cut = cut and min(cut, most)
    prompts = PromptModel(**sizes(style, side), max_images=most, max_texts=texts, images_after_cut=after_cut)
    attempts = [attempt(number, length, side) for number, length in enumerate(lengths)]
    alone, packed = (UpdateTokens(prompts, packed=packed) for packed in (False, True))
    # The model counts a first prompt that attempts share once; the packer does so only if replies are single tokens.
    assert sum(computed(style, [turns], "turns") for turns in attempts) == sum(alone.of_group([n]) for n in lengths)
    found = sum(computed(style, [turns], "trajectories") for turns in attempts)
    modeled = sum(packed.of_group([length]) for length in lengths)
    assert found <= modeled
    if texts >= most - 1:
        assert found == modeled
