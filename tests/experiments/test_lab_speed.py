"""The speed of the laboratory in small: its figures are those of the simulation that was timed."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from dartsim.lab.virtual import as_virtual
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments import lab_speed
from experiments.speed import configuration


def test_one_size_is_measured():
    began = time.process_time()
    row = lab_speed.one_size(10, 0.1, 0)
    assert 0.0 < row["cpu_seconds"] <= time.process_time() - began
    assert row["simulated_hours_per_second"] == pytest.approx(0.1 / row["cpu_seconds"])
    run = run_simulation(prepare(as_virtual(configuration(10, 0.1, seed=0))))
    turns = run.recorder.snapshots[-1].counts["generated_turns"]
    assert turns > 50
    assert row["cpu_seconds"] / row["cpu_us_per_turn"] * 1e6 == pytest.approx(turns, rel=0.2)  # of the measured part
    assert set(row) == {"cpu_seconds", "simulated_hours_per_second", "cpu_us_per_turn", "peak_rss_mb"}


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
    for text in (console.file.getvalue(), lab_speed.summary(figures)):
        assert "10,000" in text
        assert "49.3 trials a minute on 2 cores" in text
