"""The GPU checks where there is none: counts are exact, absence is said, and a rank on the processor runs them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("transformers", reason="needs the extra `train`")

from experiments import gpu  # noqa: E402
from experiments.gpu import computed, drawn_batch, parity, peak_flops, shown_model, speed  # noqa: E402


def test_tokens_and_patches_are_those_of_the_prompts(tmp_path):
    from dartsim.lab.model_shapes import read_shape
    from dartsim.real.vlm import build
    from dartsim.real.vlm.export import export

    vlm = build(shown_model("cpu", small=True))
    batch = drawn_batch(vlm, update=1, groups=2, turns=2, screen=(56, 56), tokens=3)
    text, patches = computed(vlm, batch, read_shape(export(vlm, tmp_path / "model")))
    # A screen of 56 x 56 has 16 patches; the second turn of each of four attempts shows two screens.
    assert patches == 4 * (1 + 2) * 16
    first = vlm.prompts.build(batch.groups[0].trajectories[0].turns[0].observation, [])
    second = vlm.prompts.build(
        batch.groups[0].trajectories[0].turns[1].observation, batch.groups[0].trajectories[0].turns[:1]
    )
    assert text == 4 * (len(first.tokens) + len(second.tokens) + 2 * 3)


def test_a_processor_has_no_known_peak():
    assert peak_flops("cpu") is None


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
    assert fast["tokens_per_second"] > 0
    assert (fast["mfu"], fast["peak_gib"]) == (None, None)
