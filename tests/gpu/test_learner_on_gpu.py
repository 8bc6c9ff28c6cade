"""A rank on a GPU takes the step that the processor takes, within its precision, and within its estimated memory."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu


def test_a_step_in_float32_is_the_processor_s(figures):
    found = figures["parity"]["float32"]
    assert found["loss_difference"] < 1e-4
    assert found["grad_norm_ratio"] == pytest.approx(1.0, abs=1e-3)
    assert found["step_cosine"] > 0.999


def test_a_step_in_bfloat16_goes_the_same_way(figures):
    found = figures["parity"]["bfloat16"]
    assert found["loss_difference"] < 0.02
    assert found["grad_norm_ratio"] == pytest.approx(1.0, abs=0.05)
    assert found["step_cosine"] > 0.9


def test_layers_of_a_7b_fit_their_estimate_and_never_write_a_matrix_of_scores(figures):
    found = figures["learner"]
    packed = found["variants"]["packed"]
    assert 16 * found["parameters"] / 2**30 < packed["peak_gib"] < 1.1 * found["estimated_gib"]
    assert found["kernels"]
    assert "math" not in found["kernels"]
    if packed["mfu"] is not None:
        assert 0.05 < packed["mfu"] < 1.0


@pytest.mark.parametrize("other", ["per turn", "trl"])
def test_several_turns_in_a_sequence_train_more_turns_a_second(figures, other):
    variants = figures["learner"]["variants"]
    assert variants["packed"]["turns_per_second"] > variants[other]["turns_per_second"]
