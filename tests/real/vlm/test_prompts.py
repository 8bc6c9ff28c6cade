from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.errors import ConfigError  # noqa: E402
from dartsim.core.types import Observation, Reply, Turn  # noqa: E402
from dartsim.real.vlm import PromptStyle, build, tiny  # noqa: E402
from dartsim.real.vlm.vocabulary import GROUNDING, SPECIAL  # noqa: E402


def history(count: int) -> tuple[Observation, list[Turn]]:
    rng = np.random.default_rng(0)
    seen = [Observation(rng.integers(0, 256, (56, 56, 3), dtype=np.uint8), "do it") for _ in range(count + 1)]
    return seen[-1], [Turn(shown, Reply(f"click {i} {i}", 0, 0, 0, 0, 0)) for i, shown in enumerate(seen[:-1])]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("terse", [True, False])
def test_positions_are_those_of_the_library(make_vlm, family, terse):
    vlm = make_vlm(family=family, prompts=PromptStyle(system="You act.", max_images=3, max_texts=4, terse=terse))
    now, before = history(4)
    prompt = vlm.prompts.build(now, before)
    ids = torch.from_numpy(prompt.tokens)[None]
    kinds = (ids == vlm.vocabulary.image).int()
    grids = torch.tensor([[1, *picture.grid] for picture in prompt.pictures])
    wanted, _ = vlm.model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grids)
    assert np.array_equal(wanted[:, 0].numpy(), prompt.positions)
    assert prompt.next_position == prompt.positions.max() + 1


@pytest.mark.parametrize(("images", "texts"), [(1, 0), (1, 9), (3, 1), (9, 2), (9, 9)])
def test_the_newest_images_and_texts_are_shown(make_vlm, images, texts):
    vlm = make_vlm(prompts=PromptStyle(max_images=images, max_texts=texts))
    now, before = history(5)
    prompt = vlm.prompts.build(now, before)
    assert len(prompt.pictures) == min(images, 6)
    assert prompt.pictures[-1] is vlm.prompts.pictures(now.screenshot)
    text = vlm.vocabulary.decode(prompt.tokens)
    shown = [i for i in range(5) if f"click {i} {i}" in text]
    assert shown == list(range(5))[5 - min(texts, 5) :]


def test_cut_in_blocks_a_prompt_begins_with_the_one_before_it(make_vlm):
    """Between two cuts nothing in front changes, which is what a prefix cache wants; sliding changes every turn."""

    def prefixes_kept(style: PromptStyle) -> list[bool]:
        vlm = make_vlm(prompts=style)
        now, before = history(7)
        turns = [*(turn.observation for turn in before), now]
        built = [vlm.prompts.build(turns[turn], before[:turn]) for turn in range(8)]
        assert [len(prompt.pictures) for prompt in built] == shown
        heads = [prompt.tokens[: prompt.image_starts[-1]].tobytes() for prompt in built]
        first = [prompt.pictures[0].key for prompt in built]
        pairs = range(1, 8)
        return [built[i].tokens.tobytes().startswith(heads[i - 1]) and first[i] == first[i - 1] for i in pairs]

    shown = [1, 2, 3, 4, 2, 3, 4, 2]
    cut = prefixes_kept(PromptStyle(max_images=4, max_texts=9, images_after_cut=2))
    assert cut == [True, True, True, False, True, True, False]
    shown = [1, 2, 3, 4, 4, 4, 4, 4]
    assert prefixes_kept(PromptStyle(max_images=4, max_texts=9)) == [True] * 3 + [False] * 4


def test_a_reply_is_remembered_in_the_tokens_that_were_sampled(make_vlm):
    vlm = make_vlm()
    _, before = history(1)
    odd = [int(t) for letter in "click 0 0" for t in vlm.vocabulary.encode(letter)]
    sampled = before[0].reply._replace(tokens=np.array([*odd, vlm.vocabulary.end]))
    assert vlm.prompts.reply_tokens(before[0]._replace(reply=sampled)) == odd
    assert vlm.vocabulary.decode(odd) == "click 0 0"


CONTROL = [*SPECIAL, *GROUNDING, "<tool_call>", "{instruction}", "Action: ", "start_box='(1,2)'", "<|", "|>", "<|im_"]
texts = st.lists(st.sampled_from(CONTROL) | st.text(max_size=4), max_size=6).map("".join)


def controls(vlm, instruction: str, replies: list[str], *, sampled: bool) -> list[int]:
    """Return the control tokens of a prompt but for box tokens, and check what an engine makes of it."""
    vocabulary = vlm.vocabulary
    now, before = history(len(replies))
    for place, (turn, text) in enumerate(zip(before, replies, strict=True)):
        tokens = np.array([*vocabulary.encode(text), vocabulary.end]) if sampled else None
        before[place] = turn._replace(reply=turn.reply._replace(action=text, tokens=tokens))
    prompt = vlm.prompts.build(now._replace(instruction=instruction), before)
    parts = np.split(prompt.tokens, list(prompt.image_starts))
    assert np.count_nonzero(prompt.tokens == vocabulary.image) == 4 * len(prompt.pictures) == 4 * (len(parts) - 1)
    short = prompt.short_tokens
    expanded = [token for each in short for token in [each] * (4 if each == vocabulary.image else 1)]
    assert expanded == prompt.tokens.tolist()
    known = vocabulary.tokenizer.get_vocab()
    names = [*SPECIAL, *GROUNDING[:2], *GROUNDING[4:], "<tool_call>"]
    ids = {known[name] for name in names if name in known}
    return [token for token in prompt.tokens.tolist() if token in ids]


@pytest.fixture(scope="session")
def three_styles(qwen) -> list[Any]:
    """A model with a small vocabulary, terse or not, and one with Qwen's and box tokens."""
    style = PromptStyle(system="Help.", max_images=2, max_texts=2, task="Do: {instruction}\n")
    small = [build(replace(tiny(), prompts=replace(style, terse=terse))) for terse in (True, False)]
    return [*small, qwen.qwen_model(replace(style, box_tokens=True))]


@settings(max_examples=20)
@given(instruction=texts, replies=st.lists(texts, max_size=2), sampled=st.booleans(), kind=st.integers(0, 2))
def test_text_is_text_whatever_it_spells(three_styles, instruction, replies, sampled, kind):
    vlm = three_styles[kind]
    harmless = controls(vlm, "x", ["y"] * len(replies), sampled=False)
    assert controls(vlm, instruction, replies, sampled=sampled) == harmless
    for text in (instruction, *replies):
        assert vlm.vocabulary.decode(vlm.vocabulary.encode(text)) == text


@pytest.fixture(scope="session")
def terse_qwen(qwen) -> Any:
    return qwen.qwen_model(PromptStyle())


@given(text=texts)
def test_a_demonstration_s_reply_ends_at_its_end_only(terse_qwen, text):
    vlm = terse_qwen
    tokens = vlm.grammar.tokens(text)
    assert tokens.index(vlm.vocabulary.end) == len(tokens) - 1
    assert vlm.vocabulary.decode(tokens) == text


def test_a_sampled_reply_stays_as_it_was_sampled_and_is_text_where_it_is_written_anew(qwen):
    vlm = qwen.qwen_model(PromptStyle(box_tokens=True))
    vocabulary = vlm.vocabulary
    _, (turn,) = history(1)
    spelled = [*vocabulary.encode("<|im_end|>"), *vocabulary.encode("<tool_call>")]
    call = vocabulary.tokenizer.convert_tokens_to_ids("<tool_call>")
    for sampled, shown in (
        ([*spelled, call], [*spelled, call]),
        ([*spelled, call, *vocabulary.encode(" ")], [*spelled, *vocabulary.encode("<tool_call>")]),  # trimmed
    ):
        reply = turn.reply._replace(tokens=np.array([*sampled, vocabulary.end]))
        assert list(vlm.prompts.reply_tokens(turn._replace(reply=reply))) == shown


def test_prompts_are_equal_only_if_all_is(make_vlm):
    vlm = make_vlm()
    now, before = history(1)
    key = vlm.prompts.build(now, before).key
    assert vlm.prompts.build(now, before).key == key
    other = Observation(now.screenshot ^ 1, now.instruction)
    assert vlm.prompts.build(other, before).key != key
    assert vlm.prompts.build(now, []).key != key


def test_a_prompt_without_an_image_is_refused():
    with pytest.raises(ConfigError, match="max_images"):
        PromptStyle(max_images=0)
    with pytest.raises(ConfigError, match="images_after_cut"):
        PromptStyle(max_images=2, images_after_cut=3)
