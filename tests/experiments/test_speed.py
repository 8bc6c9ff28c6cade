"""The speed benchmark in small: the same keys, plausible figures, and yardsticks that do the same work."""

from __future__ import annotations

import pytest

from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments import speed
from experiments.bare_simpy import BareCluster
from experiments.timers import LOOPS, timers_per_second

WANTED = {
    "num_envs",
    "simulated_hours",
    "cpu_us_per_turn",
    "plain_cpu_us_per_turn",
    "bare_simpy_cpu_us_per_turn",
    "speedup",
    "peak_rss_mb",
}
"""Names that scripts read."""

SMALL = speed.configuration(20, 0.5)


def test_one_size_is_measured_with_all_its_figures(monkeypatch):
    monkeypatch.setattr(speed, "isolated", lambda function, *args: function(*args))
    row = speed.size_row(20, 0.1, [speed.one_round((20, 0.1, 0))])
    assert set(row) >= WANTED
    assert row["num_turns"] > 100
    assert row["bare_simpy_num_turns"] == pytest.approx(row["num_turns"], rel=0.2)
    for name in ("cpu_us_per_turn", "plain_cpu_us_per_turn", "bare_simpy_cpu_us_per_turn"):
        assert 1.0 < row[name] < 10_000.0, name
    assert row["speedup"] == pytest.approx(360.0 / (row["cpu_us_per_turn"] * row["num_turns"] * 1e-6), rel=0.01)
    assert row["peak_rss_mb"] > 10.0


def test_forms_with_other_events_are_an_error(monkeypatch):
    figures = {"cpu_us_per_turn": 1.0, "num_turns": 1, "hash": "a"}
    runs = {"full": figures, "plain": {**figures, "hash": "b"}, "bare": figures, "bare_timeouts": figures}
    monkeypatch.setattr(speed, "is_compiled", lambda: True)
    monkeypatch.setattr(speed, "run_variant", lambda name, *args: runs[name])
    with pytest.raises(RuntimeError, match="20 desktops: the compiled form had other events"):
        speed.one_round((20, 0.1, 0))


def test_long_work_is_counted(monkeypatch):
    monkeypatch.setattr("logging.disable", lambda level: None)
    run = speed.long_work((speed.long_simulation, ["run.hours=0.2", "run.until_steady=0.01"]))
    assert run["simulated_hours"] == pytest.approx(0.2, rel=0.05)
    assert run["cpu_seconds_per_day"] == pytest.approx(24.0 / 0.2 * run["cpu_seconds"], rel=0.1)
    assert run["steady"] is False
    assert run["num_turns"] > 100
    found = speed.hostile_hours(("dart",), 2)
    assert found["runs"] == 2
    assert found["simulated_hours"] >= 0.033  # at least a minute each


def test_a_target_is_met_at_its_bound_and_unknown_without_its_figure():
    row = {"cpu_us_per_turn": 14.0, "plain_cpu_us_per_turn": 40.0, "bare_simpy_cpu_us_per_turn": 20.0}
    figures = {
        "compiled": True,
        "turns": [{**row, "num_envs": size, "peak_rss_mb": 300.0} for size in (80, 5_000, 10_000)],
        "timers_per_second": {"simloop": 69.0, "simpy": 100.0},
        "day": {"cpu_seconds_per_day": 100.0},
        "until_steady": {"cpu_seconds": 1.0, "steady": False},
        "fuzz": {"simulated_hours_per_cpu_second": 12.0},
        "bytes_per_desktop": 8_000,
        "events_per_turn": 6.1,
        "memory_growth_mb_per_hour": 0.1,
    }
    found = [target["met"] for target in speed.targets_of(figures)]
    assert found == [True, False, True, True, True, None, False, True, True, True, False, True]
    assert [target["met"] for target in speed.targets_of({**figures, "compiled": False})][:3] == [None, False, None]


def test_every_way_to_sleep_is_measured():
    rates = timers_per_second(num_tasks=10, sleeps=5, repeats=2)
    assert set(rates) == set(LOOPS)
    assert all(len(found) == 2 and min(found) > 100.0 for found in rates.values())


def test_the_bare_model_does_the_same_work():
    prepared = prepare(SMALL)
    full = run_prepared(prepared)
    for timeouts in (False, True):
        bare = BareCluster(prepared, timeouts=timeouts)
        assert bare.run() == pytest.approx(full.recorder.hot.generated_turns, rel=0.1)
        assert bare.num_attempts == pytest.approx(full.recorder.counts["attempts"], rel=0.1)


@pytest.mark.bench
def test_the_whole_system_costs_little_more_than_a_bare_model_with_time_outs():
    row = speed.size_row(80, 2.0, [speed.one_round((80, 2.0, seed)) for seed in range(3)])
    assert row["cpu_us_per_turn"] < 1.5 * row["bare_simpy_timeouts_cpu_us_per_turn"]
    assert row["speedup"] > 1_000
