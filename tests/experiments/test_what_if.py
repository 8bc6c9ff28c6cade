"""The study of what-if predictions: profiles of other configurations, the score, and one small run of everything."""

from __future__ import annotations

import json
import math
import subprocess

import pytest

from dartsim.core.errors import ConfigError
from dartsim.lab.virtual import COMPARED
from experiments import what_if


def batches(factor: float) -> list[dict]:
    """Return batches of two engines: half of the time one alone, which is then faster by a factor."""
    entries = []
    for number in range(100):
        seconds, at = (1.0 if number % 2 else factor), 10.0 * number
        entries.append({"what": "worker/batch", "at": at + seconds, "seconds": seconds, "size": 3, "worker": 0})
        if number % 2:
            entries.append({"what": "worker/batch", "at": at + 1.0, "seconds": 1.0, "size": 3, "worker": 1})
    return entries


def test_an_engine_alone_is_as_much_faster_as_its_batches_beside_no_other():
    entries = batches(0.5)
    mean = (50 * 0.5 + 100 * 1.0) / 150
    assert what_if.alone(entries) == pytest.approx(0.5 / mean, rel=1e-6)
    assert what_if.alone([entry for entry in entries if entry["seconds"] == 1.0]) is None


def test_an_attempt_longer_than_the_limit_fails_at_it(tmp_path):
    entries = [{"what": "attempt", "turns": turns, "reward": 1.0} for turns in (2, 5)]
    path = what_if.outcomes(entries, 3, tmp_path)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["turns"], each["reward"]) for each in kept] == [(2, 1.0), (3, 0.0)]


def test_the_measured_configuration_is_first_in_the_middle_and_last():
    runs = what_if.order([what_if.BASE, "a", "b", "c", "d"], seeds=2)
    assert [number for number, run in enumerate(runs) if run[0] == what_if.BASE] == [0, 5, 10]
    assert {run for run in runs if run[0] != what_if.BASE} == {(name, seed) for name in "abcd" for seed in (0, 1)}


def test_an_interval_contains_the_error_of_the_measured_runs_own_twin():
    twins = [dict.fromkeys(COMPARED, value) for value in (9.0, 10.0, 11.0, *([10.0] * what_if.PARTS))]
    exact, wrong = (what_if.intervals(twins, dict.fromkeys(COMPARED, own))["staleness_mean"] for own in (0.0, -0.2))
    deviation = math.sqrt(2.0 / 7.0)
    assert exact["high"] == pytest.approx(10.0 + 1.645 * deviation)
    assert wrong["high"] == pytest.approx(10.0 + 1.645 * math.hypot(deviation, 2.0))


def run(name: str, value: float) -> dict:
    return {"name": name, "seed": 0, "load_average": 0.0, "figures": dict.fromkeys(COMPARED, value)}


def test_only_configurations_that_were_not_measured_count_and_drift_leaves_an_order_open():
    predicted = [("as measured", 10.0), ("slow", 5.0), ("fast", 21.8), ("faster", 21.0)]
    planned = [
        {"name": name, "figures": {figure: {"predicted": x, "low": x - 1, "high": x + 1} for figure in COMPARED}}
        for name, x in predicted
    ]
    planned.append({"name": "other", "unsupported": "no reason", "figures": {}})
    measured = [run("as measured", 10.0), run("slow", 5.0), run("fast", 20.0), run("faster", 20.5)]
    found = what_if.scored([*measured, run("as measured", 10.5)], {"configurations": planned})
    assert (found["num_configurations"], found["unsupported"]) == (3, {"other": "no reason"})
    assert found["median_error"] == pytest.approx(0.5 / 20.5)
    assert found["share_within_10_percent"] == 1.0
    assert found["coverage"] == pytest.approx(2 / 3)
    assert (found["kendall_tau"], found["kendall_tau_conclusive"]) == (pytest.approx(1 / 3), 1.0)
    assert found["inconclusive_share"] == pytest.approx(1 / 3)
    assert (found["best"], found["best_predicted"], found["best_conclusive"]) == ("faster", "fast", False)


def test_nothing_is_run_before_its_prediction_is_committed(tmp_path, monkeypatch):
    for command in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    path = tmp_path / "predictions.json"
    path.write_text("{}")
    monkeypatch.setattr(what_if, "PREDICTIONS", path)
    with pytest.raises(ConfigError, match="not committed"):
        what_if.require_committed()
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    with pytest.raises(ConfigError, match="not committed"):
        what_if.require_committed()
    subprocess.run(["git", "commit", "-qm", "predictions"], cwd=tmp_path, check=True)
    what_if.require_committed()
    path.write_text("{ }")
    with pytest.raises(ConfigError, match="not committed"):
        what_if.require_committed()


@pytest.mark.slow
def test_a_small_study_has_the_figures_of_the_list():
    pytest.importorskip("torch", reason="needs the extra `train`")
    figures = what_if.STUDY.run(["--quick", "--seconds", "8", "--runs", "2"])
    assert len(figures["configurations"]) == 2
    assert {"predicted", "low", "high", "measured", "error"} == set(
        figures["configurations"][1]["figures"]["trajectories_per_minute"]
    )
    assert set(figures["unsupported"]) == {"containers"}
    assert len(figures["predictions_sha256"]) == 64
