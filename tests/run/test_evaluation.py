"""Evaluation of a model in training: equal attempts for every version."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `train`")

from dartsim.config import load
from dartsim.core.types import Weights
from dartsim.real.vlm import build
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.model import HeldOut
from dartsim.run.prepare import prepare


def test_equal_weights_make_equal_attempts_under_any_version():
    prepared = prepare(load("tiny", overrides=["tasks.count=16", "tasks.held_out=32"]))
    vlm = build(vlm_config(prepared.config))
    held_out, weights = HeldOut(prepared, vlm), vlm.snapshot()
    assert held_out.evaluate(Weights(0, weights)) == held_out.evaluate(Weights(7, weights))
    first, again = held_out.evaluations
    assert first == again
    assert len(first) == 32
