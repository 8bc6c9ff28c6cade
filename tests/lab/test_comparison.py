"""Figures that schedulers are compared by, on numbers that can be worked out by hand."""

from math import sqrt
from statistics import stdev

import pytest

from dartsim.lab.comparison import (
    FIGURES,
    classes_over_seeds,
    comparison_figures,
    half_width,
    over_seeds,
)
from dartsim.lab.gate import Comparison

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


def counted(short, long):
    """A run that offered 80 attempts of each, whose filter kept half, and trained so many, in groups of eight."""
    rows = {
        label: {"offered": 80, "judged": 80, "kept": 40, "trained": trained, "trained_groups": trained // 8}
        for label, trained in (("short", short), ("long", long))
    }
    return comparison_figures({**SUMMARY, "bias": {"by task length": rows}})


def test_classes_are_judged_by_all_seeds_together():
    one = counted(40, 8)
    assert [*one["classes"]["length"]] == ["short", "long"]
    assert classes_over_seeds([one])["starved_classes"] == [], "five groups say too little"
    found = classes_over_seeds([one] * 10)
    assert found["least_classes"]["length"]["class"] == "long"
    assert [(share["by"], share["class"], share["groups"]) for share in found["starved_classes"]] == [
        ("length", "long", 10)
    ]


def test_cost_is_what_was_provisioned_for_a_thousand_trained_turns():
    found = comparison_figures(SUMMARY, [0.5, 1.25], updates=2)
    assert found["desktop_hours_per_1000_turns"] == pytest.approx(38 / 3)
    assert found["gpu_hours_per_1000_turns"] == pytest.approx(4 / 3)
    assert found["hours_to_updates"] == 1.25
    lent = {**SUMMARY, "engine_shares": {"off": 0.25}}
    assert comparison_figures(lent)["gpu_hours_per_1000_turns"] == pytest.approx(1.0), "while it is an engine's"
    assert comparison_figures(SUMMARY, [0.5], updates=2)["hours_to_updates"] is None
    assert comparison_figures({**SUMMARY, "trained_turns_per_minute": 0.0})["gpu_hours_per_1000_turns"] is None


def test_the_interval_over_seeds_is_student_s():
    assert half_width([3.0]) is None
    assert half_width([1.0, 3.0]) == pytest.approx(12.706, rel=1e-4)
    assert half_width([2.0] * 20) == 0.0
    for number, quantile in ((11, 2.2281), (12, 2.2010), (13, 2.1788), (16, 2.1314), (31, 2.0423), (1001, 1.9623)):
        values = [float(place % 2) for place in range(number)]
        assert half_width(values) == pytest.approx(quantile * stdev(values) / sqrt(number), rel=1e-4)
    runs = [{**dict.fromkeys(FIGURES, value), "staleness_max": value, "wasted_share": None} for value in (1.0, 3.0)]
    found = over_seeds(runs)
    assert found["env_utilization"] == {"mean": 2.0, "half_width": pytest.approx(12.706, rel=1e-4)}
    assert found["staleness_max"] == {"mean": 3.0, "half_width": None}
    assert "wasted_share" not in found


def ranked(**trained):
    rows = {name: [{"trained_turns_per_minute": value} for value in values] for name, values in trained.items()}
    number = len(next(iter(trained.values())))
    return Comparison(tuple(trained), tuple(range(number)), rows, {}).ranking()


def test_a_ranking_says_what_differs_from_the_best_seed_by_seed():
    # Seeds shift all schedulers by 10, so that unpaired intervals overlap; b is lower by 1 with each seed.
    ranks = ranked(b=[49.0, 59.1, 68.9], a=[50.0, 60.0, 70.0], c=[52.0, 55.0, 64.0])
    assert [rank.scheduler for rank in ranks] == ["a", "b", "c"]
    best, lower, chance = ranks
    assert (best.verdict, lower.verdict) == ("best", "differs")
    assert lower.change == pytest.approx(-1.0 / 60.0)
    assert lower.change_half_width == pytest.approx(half_width([-1.0, -0.9, -1.1]) / 60.0)
    assert chance.verdict == "could be chance"


def test_a_ranking_claims_nothing_without_evidence():
    assert [rank.verdict for rank in ranked(a=[2.0], b=[1.0])] == ["best", "unknown: one seed; take --seeds 3 or more"]
    same = ranked(a=[1.0, 2.0], b=[2.0, 1.0])[1]
    assert same.verdict == "could be chance"
    none = ranked(a=[None, None], b=[1.0, 1.0])
    assert [rank.scheduler for rank in none] == ["b", "a"]
    assert none[1].verdict.startswith("unknown: no update finished")


def test_runs_with_the_same_events_are_identical_to_the_first_of_them():
    def row(turns, event_hash, engines=2):
        config = {"rollout": {"num_envs": 4, "warm_envs": 0, "num_workers": engines}}
        return comparison_figures(
            {**SUMMARY, "trained_turns_per_minute": turns, "event_hash": event_hash, "config": config}
        )

    def verdicts(engines=2, **rows):
        made = {name: [row(*one, engines) for one in own] for name, own in rows.items()}
        return [rank.verdict for rank in Comparison(tuple(made), (0, 1), made, {}).ranking()]

    own = [(3.0, "a"), (4.0, "b")]
    assert verdicts(eta4=own, mine=own) == ["best", "identical to eta4 in every event"]
    assert verdicts(eta4=own, dart=[(5.0, "c"), (6.0, "d")], mine=own)[2] == "identical to eta4 in every event"
    assert verdicts(eta4=own, mine=[(3.0, "a"), (4.0, "c")])[1] == "the same in every run"
    assert verdicts(1, eta4=own, mine=own)[1].endswith("(with one engine, every router sends all requests to it)")
