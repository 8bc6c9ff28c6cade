"""Counted operations against PyTorch's own count, and what packing saves."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.policy import SurrogateConfig
from dartsim.lab.batch_tokens import surrogate_lengths
from dartsim.lab.model_shapes import QWEN2_5_VL_7B, read_shape
from dartsim.sim.prompts import PromptModel
from experiments.operations import forward_operations, turn_operations

DART = PromptModel()
BLOCKS = PromptModel(window="block", max_images=5, images_after_cut=2)


@given(
    st.integers(1, 40),
    st.sampled_from(["slide", "block"]),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(0, 35),
)
def test_sequences_train_each_turn_once_with_prompts_that_extend_each_other(turns, window, most, after, texts):
    prompts = PromptModel(window=window, max_images=most, images_after_cut=min(most, after), max_texts=texts)
    alone, packed = (prompts.training_sequences(turns, packed=packed) for packed in (False, True))
    assert sum(each.turns for each in packed) == len(alone) == turns
    ends = [sum(each.turns for each in packed[: n + 1]) - 1 for n in range(len(packed))]
    assert [(alone[end].tokens, alone[end].images) for end in ends] == [each[:2] for each in packed]
    for before, end in pairwise([-1, *ends]):
        for turn in range(before + 1, end):
            shown = [*prompts.segments(turn), ("reply", turn)]
            assert prompts.segments(turn + 1)[: len(shown)] == shown


def test_blocks_of_five_images_cut_to_two_have_17_screens_in_14_turns_instead_of_45():
    assert sum(each.images for each in BLOCKS.training_sequences(14, packed=False)) == 45
    assert sum(each.images for each in BLOCKS.training_sequences(14, packed=True)) == 17
    assert sum(each.images for each in DART.training_sequences(14, packed=False)) == 60


def test_a_7b_update_in_blocks_takes_a_third_of_darts_operations():
    lengths = surrogate_lengths(SurrogateConfig(), success_rate=0.594, max_turns=30)
    assert 14.0 < fmean(lengths) < 14.8  # 14.26 were measured
    dart = turn_operations(QWEN2_5_VL_7B, DART, lengths, packed=False)
    blocks = turn_operations(QWEN2_5_VL_7B, BLOCKS, lengths, packed=True)
    assert 2.7e14 < dart.total < 2.9e14
    assert 3.3 < dart.total / blocks.total < 3.8


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_torch_counts_the_same_operations(family, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("transformers", reason="needs the extra `train`")
    from dataclasses import replace

    import numpy as np
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from dartsim.core.types import Observation
    from dartsim.real.vlm import PromptStyle, build, tiny
    from dartsim.real.vlm.packing import Example, pack, rows_of, score

    # Wider than the tiny model, so that biases and norms do not matter; four windows a picture.
    wide = replace(tiny(family=family), hidden_size=256, intermediate_size=512, vision_hidden_size=128)
    vlm = build(replace(wide, window_size=56, prompts=PromptStyle(max_images=2)))
    vlm.save(tmp_path)
    screen = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    prompt = vlm.prompts.build(Observation(screen, "press the red button"), [])
    examples = [Example(prompt, np.zeros(1, np.int64))]
    packed = pack(vlm, rows_of(examples), examples)
    # The mathematical kernel consists of products that the counter knows.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        score(vlm, packed)
    rows, columns = prompt.pictures[0].grid
    counted = forward_operations(
        read_shape(tmp_path), [len(prompt.tokens)], pictures=1, patches=rows * columns, reply_tokens=1
    )
    # It computes the whole square of attention.
    assert counter.get_total_flops() == pytest.approx(counted.total + counted.attention, rel=0.01)
