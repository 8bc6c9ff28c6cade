"""Agreement of runs that end once they are steady with long ones."""

from __future__ import annotations

import pytest

from experiments.steady import NAMES, agreement


def short(mean, half_width, *, reached=True, hours=12.0):
    found = {"mean": mean, "half_width": half_width}
    figures = dict.fromkeys(NAMES, found)
    times = {"hours": hours, "planned_hours": 48.0}
    return {"reached": reached, "drifting": not reached, "precision": 0.03, **times, "figures": figures}


def long(mean):
    """A reference run, whose trained turns up to the end of a window are not what is compared."""
    return {**dict.fromkeys(NAMES, mean), "trained_turns_per_minute": 0.0, "steady_turns_per_minute": mean}


def test_coverage_counts_runs_that_became_steady():
    runs = [short(40.0, 1.0), short(41.5, 1.0), short(39.5, 1.0), short(80.0, 1.0, reached=False, hours=48.0)]
    row = agreement(runs, [long(39.99), long(40.01)])
    assert (row["runs"], row["steady"], row["drifting"], row["hours"], row["time_share"]) == (4, 3, 1, 12.0, 0.4375)
    figure = row["figures"]["trained_turns_per_minute"]
    assert figure["covered"] == [True, False, True]
    assert figure["within"] == [True, False, True]
    assert row["within"] == pytest.approx(2.0 / 3.0)
    assert figure["mean"] == pytest.approx(121.0 / 3.0)


def test_coverage_allows_for_the_error_of_the_long_runs():
    """Their mean is 40 ± 1.27."""
    for error, covered in ((1.6, True), (1.7, False)):
        row = agreement([short(40.0 + error, 1.0)], [long(39.9), long(40.1)])
        assert row["figures"]["env_utilization"]["covered"] == [covered]


def test_without_a_steady_run_coverage_is_unknown():
    row = agreement([short(40.0, 1.0, reached=False)], [long(40.0)])
    assert row["steady"] == 0
    assert row["figures"]["trained_turns_per_minute"]["coverage"] is None
