"""The experiment on long tasks for real: its configuration, its base model, and what it says of its figures."""

from __future__ import annotations

import pytest

from experiments import many_turns


def test_the_gain_is_paired_by_task():
    before = {"a": 0.0, "b": 1.0, "c": 0.0, "masked": 1.0}
    gained = many_turns.gain(before, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert (gained["held_out_tasks"], gained["success_rate_first"], gained["success_rate_last"]) == (
        3,
        pytest.approx(1 / 3),
        1.0,
    )
    assert gained["success_gain"]["mean"] == pytest.approx(2 / 3)
    assert gained["success_gain"]["half_width"] == pytest.approx(4.303 / 3, rel=1e-3)  # t of two degrees of freedom
    assert gained["difference_low"] == pytest.approx(2 / 3 - 4.303 / 3, rel=1e-3)


def test_the_base_model_is_a_folder_that_a_run_starts_with(tmp_path):
    pytest.importorskip("torch", reason="needs the extra `train`")
    from dartsim.run.model import served_model

    settings = many_turns.config("many_turns", 0, quick=True)
    folder = many_turns.make_base(settings, tmp_path / "base", quick=True)
    served = served_model(many_turns.with_model(settings, folder))
    assert served.vlm.config.folder == str(folder)
