"""A rank on a GPU takes the step that the processor takes, within its precision, and within its estimated memory."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu


def test_a_step_in_float32_is_the_processor_s(cuda):
    from experiments.gpu import parity

    found = parity(cuda, ["float32"])["float32"]
    assert found["loss_difference"] < 1e-4
    assert found["grad_norm_ratio"] == pytest.approx(1.0, abs=1e-3)
    assert found["step_cosine"] > 0.999


def test_a_step_in_bfloat16_goes_the_same_way(cuda):
    from experiments.gpu import parity

    found = parity(cuda, ["bfloat16"])["bfloat16"]
    assert found["loss_difference"] < 0.02
    assert found["grad_norm_ratio"] == pytest.approx(1.0, abs=0.05)
    assert found["step_cosine"] > 0.9


def test_speed_and_memory_are_measured(cuda):
    from experiments.gpu import speed

    found = speed(cuda, small=False, updates=2)
    assert found["tokens_per_second"] > 0
    assert found["peak_gib"] > 4 * 4 * found["parameters"] / 2**30 * 0.9  # weights, gradients, two moments
    assert found["peak_gib"] < 1.25 * found["estimated_gib"]
    if found["mfu"] is not None:
        assert 0.01 < found["mfu"] < 1.0
