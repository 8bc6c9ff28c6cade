"""Figures that schedulers are compared by, on numbers that can be worked out by hand."""

from math import sqrt
from statistics import stdev

import pytest

from dartsim.lab.comparison import FIGURES, class_ratios, classes_over_seeds, compared, half_width, over_seeds

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


def test_shares_of_trained_over_offered():
    assert class_ratios(BIAS) == pytest.approx({"short": 1.2, "middle": 1.2, "long": 0.4})
    assert class_ratios({"long": {"offered": 3, "trained": 0}}) == {}


def counted(short, long):
    """A run that offered 80 attempts of each, whose filter kept half, and trained so many, in groups of eight."""
    rows = {
        label: {"offered": 80, "judged": 80, "kept": 40, "trained": trained, "trained_groups": trained // 8}
        for label, trained in (("short", short), ("long", long))
    }
    return compared({**SUMMARY, "bias": {"by task length": rows}})


def test_classes_are_judged_by_all_seeds_together():
    one = counted(40, 8)
    assert one["least_ratio_by_length"] == pytest.approx(0.2 / 0.6)
    assert (one["least_ratio_by_difficulty"], one["least_ratio_by_domain"]) == (None, None)
    assert [*one["classes"]["length"]] == ["short", "long"]
    assert classes_over_seeds([one])["starved_classes"] == [], "five groups say too little"
    found = classes_over_seeds([one] * 10)
    assert found["least_classes"]["length"]["class"] == "long"
    assert [(share["by"], share["class"], share["groups"]) for share in found["starved_classes"]] == [
        ("length", "long", 10)
    ]


def test_a_run_that_did_not_count_what_the_filter_did_is_not_judged():
    old = compared(SUMMARY)
    assert (old["least_ratio_by_length"], old["classes"]) == (None, {})
    assert classes_over_seeds([old]) == {"least_classes": {}, "starved_classes": None}


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
    for number, quantile in ((11, 2.2281), (12, 2.2010), (13, 2.1788), (16, 2.1314), (31, 2.0423), (1001, 1.9623)):
        values = [float(place % 2) for place in range(number)]
        assert half_width(values) == pytest.approx(quantile * stdev(values) / sqrt(number), rel=1e-4)
    runs = [{**dict.fromkeys(FIGURES, value), "staleness_max": value, "wasted_share": None} for value in (1.0, 3.0)]
    found = over_seeds(runs)
    assert found["env_utilization"] == {"mean": 2.0, "half_width": pytest.approx(12.706)}
    assert found["staleness_max"] == {"mean": 3.0, "half_width": None}
    assert "wasted_share" not in found
