"""Everything here wants a CUDA device, and is skipped by name without one."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def figures() -> dict[str, Any]:
    """What ``experiments.gpu --quick`` measures, measured once for all tests and printed (shown by ``-s``)."""
    torch = pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("transformers", reason="needs the extra `train`")
    pytest.importorskip("trl", reason="needs the extra `peers`")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from experiments.gpu import figures_of, summary

    measured = figures_of("cuda", quick=True)
    print(summary(measured))
    return measured
