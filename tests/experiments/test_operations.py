"""Counted operations against PyTorch's own count."""

from __future__ import annotations

import pytest

from dartsim.lab.model_shapes import read_shape
from experiments.operations import forward_operations


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
