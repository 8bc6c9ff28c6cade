"""Figures over time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dartsim.observe.figures import FIGURES, by_label, figures, intervals, thinned


def test_intervals_touch_and_cover_the_run(make_recorder):
    recorder = make_recorder(hours=2.0)
    data = intervals(recorder.snapshots)
    assert data["from_hours"][0] == 0.0
    assert data["to_hours"][-1] == pytest.approx(recorder.snapshots[-1].time / 3600.0)
    for end, start in zip(data["to_hours"], data["from_hours"][1:], strict=False):
        assert start == end
    columns = [*data["rates"].values(), *data["utilization"].values()]
    columns += [column for states in data["shares"].values() for column in states.values()]
    assert {len(column) for column in columns} == {len(data["from_hours"])}


def test_intervals_add_up_to_the_figure_of_the_whole(make_recorder):
    recorder = make_recorder(hours=2.0)
    data = intervals(recorder.snapshots)
    whole = figures(recorder.snapshots[0], recorder.snapshots[-1])
    hours = np.subtract(data["to_hours"], data["from_hours"])
    for name, column in data["rates"].items():
        assert np.average(column, weights=hours) == pytest.approx(whole[name], rel=1e-3)
    for name, column in data["utilization"].items():
        assert np.average(column, weights=hours) == pytest.approx(whole[name], rel=1e-3)


def test_shares_of_each_interval_add_up_to_one(make_recorder):
    data = intervals(make_recorder(hours=1.0).snapshots)
    for states in data["shares"].values():
        for shares in zip(*states.values(), strict=True):
            assert sum(shares) == pytest.approx(1.0, abs=1e-5)


def test_every_shown_figure_is_measured(make_recorder):
    recorder = make_recorder(hours=0.5)
    measured = set(figures(recorder.snapshots[0], recorder.snapshots[-1])) | {"staleness_mean", "staleness_max"}
    assert set(FIGURES) <= measured


@pytest.mark.parametrize("number", [0, 1, 50, 51, 4096])
def test_a_selection_is_even_and_keeps_the_last(number):
    found = thinned(range(number), 50)
    assert len(found) <= 50
    assert list(found[-1:]) == ([number - 1] if number else [])
    assert len({after - before for before, after in pairwise(found)}) <= 1


def test_counts_are_added_up_by_label():
    counts = {"offered": {"a": 3, "b": 4, "c": 5}, "trained": {"a": 1}}
    assert by_label(counts, {"a": "x", "b": "x", "d": "y"}) == {
        "x": {"offered": 7, "trained": 1},
        "y": {"offered": 0, "trained": 0},
    }
