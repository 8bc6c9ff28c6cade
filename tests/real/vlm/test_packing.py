"""Turns that share rows have the log-probabilities and gradients that each has alone."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.types import Observation, Reply, Turn  # noqa: E402
from dartsim.real.vlm import Decoding, PromptStyle, build, tiny  # noqa: E402
from dartsim.real.vlm.packing import Example, pack, rows_of, score, split  # noqa: E402
from dartsim.real.vlm.prompts import PromptBuilder  # noqa: E402

SIZES = ((56, 56), (56, 84), (112, 84))


@cache
def model(family, grammar="free"):
    torch.set_num_threads(1)
    decoding = Decoding(grammar=grammar, max_new_tokens=24)
    return build(replace(tiny(family=family), decoding=decoding, output_scale=1.0))


@cache
def screen(number: int):
    rng = np.random.default_rng(number)
    return rng.integers(0, 256, (*SIZES[number % len(SIZES)], 3), dtype=np.uint8)


@st.composite
def styles(draw) -> PromptStyle:
    images = draw(st.integers(1, 4))
    return PromptStyle(
        system=draw(st.sampled_from(["", "You act."])),
        max_images=images,
        images_after_cut=draw(st.none() | st.integers(1, images)),
        max_texts=draw(st.sampled_from([0, 1, 2, 9])),
        terse=draw(st.booleans()),
        box_tokens=draw(st.booleans()),
        image_with_task=draw(st.booleans()),
    )


def replies(vlm, text: str, ends: bool) -> Reply:
    """Return a reply as an engine samples it: its tokens, up to the end token unless it was cut off."""
    tokens = [*vlm.vocabulary.encode(text), *([vlm.vocabulary.end] if ends else [])]
    return Reply(text, 0, 0, 0, 0, len(tokens), tokens=np.array(tokens, dtype=np.int64))


TEXTS = ("click", "click 1 1", "press the red button", "click(start_box='(3,4)')", "wait then scroll down")


@st.composite
def trajectories(draw, vlm) -> list[list[Turn]]:
    """Groups of attempts at a task: the same first screen; later ones differ, or are the same again."""
    found = []
    for group in range(draw(st.integers(1, 2))):
        for _ in range(draw(st.integers(1, 2))):
            shown = [group, *draw(st.lists(st.integers(0, 9), max_size=4))]
            words = st.tuples(st.sampled_from(TEXTS), st.booleans())
            said = [replies(vlm, *draw(words)) for _ in shown]
            found.append(
                [
                    Turn(Observation(screen(number), f"task {group}"), reply)
                    for number, reply in zip(shown, said, strict=True)
                ]
            )
    return found


def examples_of(vlm, style: PromptStyle, attempts: list[list[Turn]]) -> list[Example]:
    builder = PromptBuilder(vlm.vocabulary, vlm.prompts.pictures, style)
    return [
        Example(
            builder.build(turn.observation, turns[:number]),
            turn.reply.tokens,
        )
        for turns in attempts
        for number, turn in enumerate(turns)
    ]


def computed(vlm, examples: list[Example], weights, *, limit: int = 10**6, how="trajectories") -> tuple[Any, Any, Any]:
    """Return log-probabilities and entropies [B, T], and the gradient of a weighted sum of them."""
    vlm.model.zero_grad()
    logprobs, entropies = torch.zeros(weights.shape), torch.zeros(weights.shape)
    for rows in split(rows_of(examples, pack=how), max_tokens=limit):
        packed = pack(vlm, rows, examples)
        one, other = score(vlm, packed)
        at = packed.member, packed.column
        (weights[at] * (one + 0.3 * other)).sum().backward()
        logprobs[at], entropies[at] = one.detach(), other.detach()
    gradient = torch.cat([p.grad.flatten() for p in vlm.model.parameters() if p.grad is not None])
    return logprobs, entropies, gradient


def alone(vlm, examples: list[Example], weights) -> tuple[Any, Any, Any]:
    """Return the same with every turn in a row of its own."""
    total, parts = 0.0, []
    for number, example in enumerate(examples):
        logprobs, entropies, gradient = computed(vlm, [example], weights[number : number + 1])
        parts.append((logprobs, entropies))
        total = total + gradient
    return torch.cat([one for one, _ in parts]), torch.cat([other for _, other in parts]), total


@settings(deadline=None, max_examples=20)
@given(data=st.data(), family=st.sampled_from(["qwen2_5_vl", "qwen3_vl"]), style=styles())
def test_turns_that_share_rows_are_scored_as_if_alone(data, family, style):
    vlm = model(family)
    examples = examples_of(vlm, style, data.draw(trajectories(vlm)))
    rule = {
        "limit": data.draw(st.sampled_from([10**6, 40, 120, 300])),
        "how": data.draw(st.sampled_from(["trajectories", "trajectories", "turns"])),
    }
    longest = max(len(example.tokens) for example in examples)
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=(len(examples), longest))).float()
    wanted, found = alone(vlm, examples, weights), computed(vlm, examples, weights, **rule)
    assert torch.allclose(found[0], wanted[0], atol=1e-5)
    assert torch.allclose(found[1], wanted[1], atol=1e-5)
    assert (found[2] - wanted[2]).norm() <= 1e-5 * wanted[2].norm()


@settings(deadline=None, max_examples=30)
@given(data=st.data(), style=styles(), limit=st.sampled_from([None, 40, 120, 300]))
def test_every_turn_is_in_one_row_as_long_as_its_longest(data, style, limit):
    vlm = model("qwen2_5_vl")
    examples = examples_of(vlm, style, data.draw(trajectories(vlm)))
    alone = sum(example.length for example in examples)
    for how in ("trajectories", "turns"):
        rows = rows_of(examples, pack=how)
        assert sorted(member for row in rows for member in row.members) == list(range(len(examples)))
        assert sum(row.length for row in rows) <= alone
        for row in rows:
            assert row.length == examples[row.example].length == max(examples[m].length for m in row.members)
        batches = split(rows, max_tokens=limit or alone, ranks=2)
        assert [row for batch in batches for row in batch] == rows
        assert all(len(batch) == 1 or sum(r.length for r in batch) <= (limit or alone) for batch in batches)
        assert len(rows) == 1 or len(batches) > 1


def played(vlm, turns: int, *, attempts: int = 1, side: int = 56) -> list[list[Turn]]:
    """Return attempts at one task, whose first screens only are equal."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
    return [
        [
            Turn(
                Observation(first if turn == 0 else rng.integers(0, 256, first.shape, dtype=np.uint8), "task"),
                replies(vlm, TEXTS[(turn + attempt) % 3], ends=True),
            )
            for turn in range(turns)
        ]
        for attempt in range(attempts)
    ]


@pytest.mark.parametrize(("images", "after_cut", "turns", "rows"), [(5, 2, 14, 4), (10, 3, 30, 4), (4, 4, 9, 6)])
def test_a_block_of_turns_is_one_row_as_long_as_its_last_turn(images, after_cut, turns, rows):
    vlm = model("qwen2_5_vl")
    style = PromptStyle(max_images=images, images_after_cut=after_cut, max_texts=99)
    examples = examples_of(vlm, style, played(vlm, turns, side=224))
    assert len(rows_of(examples)) == rows


def test_a_window_that_slides_shares_nothing_once_it_is_full():
    vlm = model("qwen2_5_vl")
    examples = examples_of(vlm, PromptStyle(max_images=3, max_texts=99), played(vlm, 8, side=224))
    assert [row.members for row in rows_of(examples)] == [[0, 1, 2], [3], [4], [5], [6], [7]]


def test_in_bfloat16_shared_rows_differ_by_its_rounding():
    vlm = model("qwen2_5_vl")
    examples = examples_of(vlm, PromptStyle(max_images=4, images_after_cut=2), played(vlm, 5, attempts=2))
    weights = torch.ones(len(examples), max(len(example.tokens) for example in examples))
    exact, _, gradient = alone(vlm, examples, weights)
    half = build(replace(vlm.config, dtype="bfloat16"))
    one, other = alone(half, examples, weights), computed(half, examples, weights)
    assert (other[0] - exact).abs().max() < 2 * (one[0] - exact).abs().max()
    assert (other[2] - gradient).norm() < 2 * (one[2] - gradient).norm()
