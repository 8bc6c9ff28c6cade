"""Everything here wants a CUDA device, and is skipped by name without one."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def cuda() -> str:
    torch = pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("transformers", reason="needs the extra `train`")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return "cuda"
