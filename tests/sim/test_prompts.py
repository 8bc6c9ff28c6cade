from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.sim.prompts import BLOCK_TOKENS, PromptModel, reply_lengths

SLIDE = PromptModel()
BLOCK = PromptModel(images_after_cut=3)


def test_slide_keeps_five_images_and_hits_nothing_but_the_text_before_them():
    assert [SLIDE.num_images(turn) for turn in range(8)] == [1, 2, 3, 4, 5, 5, 5, 5]
    assert SLIDE.warm[4].images == 1
    assert SLIDE.warm[4].cached_tokens > 11_436
    assert SLIDE.warm[5].images == 5
    assert SLIDE.warm[5].cached_tokens == 345 // BLOCK_TOKENS * BLOCK_TOKENS


@pytest.mark.parametrize("model", [SLIDE, BLOCK, PromptModel(max_images=1, max_texts=2)])
def test_cached_part_is_whole_blocks_and_never_the_whole_prompt(model):
    assert len(model.warm) == len(model.cold) == model.num_turns
    for turn, (warm, cold) in enumerate(zip(model.warm, model.cold, strict=True)):
        assert warm.tokens == cold.tokens
        assert cold.cached_tokens == 0
        assert 0 <= warm.cached_tokens < warm.tokens
        assert warm.cached_tokens % BLOCK_TOKENS == 0
        assert 1 <= warm.images <= cold.images == model.num_images(turn)


def test_dropping_texts_breaks_the_prefix_too():
    model = PromptModel(max_texts=35)
    assert model.warm[35].cached_tokens > 3_000
    assert model.warm[36].cached_tokens == model.warm[90].cached_tokens == 336
    assert model.cold[36].tokens == model.cold[90].tokens


def test_replies_meet_the_measured_quantiles():
    draw = reply_lengths(np.random.default_rng(0))
    lengths = np.array([draw() for _ in range(50_000)])
    assert lengths.mean() == pytest.approx(104, abs=1)
    assert np.quantile(lengths, [0.05, 0.5, 0.95]) == pytest.approx([73, 103.5, 139], abs=1.5)
    assert lengths.min() >= 1
    assert lengths.max() == 157


@given(
    st.integers(1, 40),
    st.integers(1, 10),
    st.none() | st.integers(1, 10),
    st.integers(0, 35),
)
def test_sequences_train_each_turn_once_with_prompts_that_extend_each_other(turns, most, after, texts):
    prompts = PromptModel(max_images=most, images_after_cut=after and min(most, after), max_texts=texts)
    alone, packed = (prompts.training_sequences(turns, packed=packed) for packed in (False, True))
    assert sum(each.turns for each in packed) == len(alone) == turns
    ends = [sum(each.turns for each in packed[: n + 1]) - 1 for n in range(len(packed))]
    assert [(alone[end].tokens, alone[end].images) for end in ends] == [each[:2] for each in packed]
    for before, end in pairwise([-1, *ends]):
        for turn in range(before + 1, end):
            shown = [*prompts.segments(turn), ("reply", turn)]
            assert prompts.segments(turn + 1)[: len(shown)] == shown


def test_blocks_of_five_images_cut_to_two_have_17_screens_in_14_turns_instead_of_45():
    five = PromptModel(max_images=5, images_after_cut=2)
    assert sum(each.images for each in five.training_sequences(14, packed=False)) == 45
    assert sum(each.images for each in five.training_sequences(14, packed=True)) == 17
    assert sum(each.images for each in SLIDE.training_sequences(14, packed=False)) == 60


@pytest.mark.parametrize("wrong", [{"images_after_cut": 6}, {"max_texts": -1}, {"num_turns": 0}])
def test_impossible_models_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        PromptModel(**wrong)
