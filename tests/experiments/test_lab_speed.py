"""The speed of the laboratory in small: the keys that scripts and pages read, and plausible figures."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments import lab_speed


def test_one_size_is_measured():
    row = lab_speed.one_size(10, 0.1, 0)
    assert set(row) == {"cpu_seconds", "simulated_hours_per_second", "cpu_us_per_turn", "peak_rss_mb"}
    assert row["simulated_hours_per_second"] == pytest.approx(0.1 / row["cpu_seconds"])
    assert 1.0 < row["cpu_us_per_turn"] < 10_000.0


@pytest.mark.soak
def test_a_study_is_measured():
    pytest.importorskip("optuna")
    found = lab_speed.one_study(4, 0.2, 0)
    assert sum(found["states"].values()) == 4
    assert found["trials_per_minute"] == pytest.approx(240.0 / found["wall_seconds"])


def test_figures_are_shown_and_quoted():
    size = {"num_envs": 10_000, "simulated_hours": 0.25, "simulated_hours_per_second": 0.004}
    sizes = [{**size, "cpu_us_per_turn": 75.0, "peak_rss_mb": 270.0, "cpu_seconds": 60.0}]
    figures = {"sizes": sizes, "study": {"trials_per_minute": 49.3, "cores": 2, "simulated_hours": 4.0}}
    console = Console(file=io.StringIO(), width=120)
    lab_speed.STUDY.show(figures, console)
    for text in (console.file.getvalue(), lab_speed.sizes_table(figures)):
        assert "10,000" in text
        assert "49.3 trials a minute on 2 cores" in text
