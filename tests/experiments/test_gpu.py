"""The GPU checks where there is none: counts are exact, absence is said, and a rank on the processor runs them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("transformers", reason="needs the extra `train`")

from experiments import gpu  # noqa: E402
from experiments.gpu import parity, speed  # noqa: E402


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_nothing_is_measured(capsys):
    with pytest.raises(SystemExit) as ended:
        gpu.STUDY.run([])
    assert ended.value.code == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_figures_of_a_processor_are_not_recorded(capsys):
    with pytest.raises(SystemExit) as ended:
        gpu.STUDY.run(["--device", "cpu", "--record"])
    assert ended.value.code == 2
    assert "leave --device cpu out" in capsys.readouterr().err


@pytest.mark.soak
def test_the_same_code_runs_on_the_processor():
    found = parity("cpu", ["float32", "bfloat16"])
    assert found["float32"] == {"loss_difference": 0.0, "grad_norm_ratio": 1.0, "step_cosine": pytest.approx(1.0)}
    assert found["bfloat16"]["loss_difference"] < 0.02
    assert found["bfloat16"]["step_cosine"] > 0.9
    fast = speed("cpu", small=True, updates=1)
    packed = fast["variants"].pop("packed")
    assert packed["turns_per_second"] > 0
    assert (packed["mfu"], packed["peak_gib"]) == (None, None)
    assert fast["variants"].keys() == {"per turn", "transformers", "trl"}
