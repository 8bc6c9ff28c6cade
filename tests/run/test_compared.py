"""Figures that schedulers are compared by, on numbers that can be worked out by hand."""

import pytest

from dartsim.run.compared import FIGURES, class_ratios, compared, half_width, over_seeds

BIAS = {
    "short": {"offered": 50, "trained": 30},
    "middle": {"offered": 25, "trained": 15},
    "long": {"offered": 25, "trained": 5},
}
SUMMARY = {
    "trained_turns_per_minute": 50.0,
    "staleness_max": 2,
    "bias": {"by task length": BIAS},
    "config": {"rollout": {"num_envs": 36, "warm_envs": 2, "num_workers": 4}},
}


def test_a_starved_class_is_seen():
    assert class_ratios(BIAS) == pytest.approx({"short": 1.2, "middle": 1.2, "long": 0.4})
    assert class_ratios({"long": {"offered": 3, "trained": 0}}) == {}


def test_cost_is_what_was_provisioned_for_a_thousand_trained_turns():
    found = compared(SUMMARY, [0.5, 1.25], updates=2)
    assert found["desktop_hours_per_1000_turns"] == pytest.approx(38 / 3)
    assert found["gpu_hours_per_1000_turns"] == pytest.approx(4 / 3)
    assert (found["hours_to_updates"], found["long_tasks_ratio"]) == (1.25, pytest.approx(0.4))
    assert compared(SUMMARY, [0.5], updates=2)["hours_to_updates"] is None
    assert compared({**SUMMARY, "trained_turns_per_minute": 0.0})["gpu_hours_per_1000_turns"] is None


def test_the_interval_over_seeds_is_student_s():
    assert half_width([3.0]) is None
    assert half_width([1.0, 3.0]) == pytest.approx(12.706)
    assert half_width([2.0] * 20) == 0.0
    runs = [{**dict.fromkeys(FIGURES, value), "staleness_max": value, "wasted_share": None} for value in (1.0, 3.0)]
    found = over_seeds(runs)
    assert found["env_utilization"] == {"mean": 2.0, "half_width": pytest.approx(12.706)}
    assert found["staleness_max"] == {"mean": 3.0, "half_width": None}
    assert "wasted_share" not in found
