"""A vLLM engine on the same GPU takes new weights by files, without NCCL and without losing a request."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.gpu


def test_weights_change_under_requests(cuda):
    from dartsim.core.install import VLLM_PYTHON
    from experiments.gpu import engine

    if not os.environ.get(VLLM_PYTHON):
        pytest.skip(f"no environment with vLLM: {VLLM_PYTHON} is not set")
    found = engine(cuda, loads=3, small=True)
    assert found is not None
    assert found["lost_requests"] == 0
    assert found["sync_seconds"] < 30.0
    assert found["tokens_per_second"] > 0
