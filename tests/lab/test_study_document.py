"""The documents from which the pages of studies are drawn."""

import numpy as np
import pytest

from dartsim.lab.gate import Comparison
from dartsim.lab.study_document import comparison_document, prediction_document, rolling_mean

FIGURE = "trained_turns_per_minute"


def compared(**figures):
    rows = {name: [{FIGURE: value} for value in values] for name, values in figures.items()}
    return Comparison(tuple(rows), tuple(range(len(next(iter(figures.values()))))), rows, {}, lambda count: None)


def test_the_best_arm_is_ranked_first_and_the_others_differ_from_it_seed_by_seed():
    found = comparison_document(compared(ours=[9.0, 10.0, 12.0], theirs=[10.0, 11.0, 13.0]), {}, [], [])
    assert [(row["rank"], row["arm"]) for row in found["ranking"]] == [(1, "theirs"), (2, "ours")]
    assert found["ranking"][0]["low"] < 34 / 3 < found["ranking"][0]["high"]
    (row,) = found["differences"]["rows"]
    assert (row["arm"], row["against"]) == ("ours", "theirs")
    assert row["low"] == row["difference"] == row["high"] == -1.0, "pairs differ by 1, so that is certain"


def test_a_rolling_mean_of_a_constant_is_the_constant_and_one_over_the_whole_run_is_the_mean():
    borders = np.cumsum([0.0, 1.0, 0.5, 2.0, 3.0])
    columns = {"from_hours": borders[:-1], "to_hours": borders[1:]}
    hours = np.linspace(0.5, 6.5, 7)
    assert rolling_mean(columns, [4.0] * 4, hours) == pytest.approx(4.0)
    bursts = rolling_mean(columns, [0.0, 8.0, 0.0, 0.0], hours)
    assert bursts.max() == pytest.approx(bursts[1])
    assert 0.0 == bursts[-1] < bursts[1] < 8.0


def test_a_prediction_shows_each_supported_row_beside_the_published_one():
    row = {"figure": "step_seconds", "published": 10.0, "supported": True, "fitted": False, "reason": None}
    row |= {"predicted": 11.0, "low": 9.0, "high": 14.0, "error": 0.1}
    rows = [
        {**row, "row": "a"},
        {**row, "row": "b", "low": 10.5},
        {**row, "row": "c", "supported": False, "reason": "why"},
        {**row, "row": "d", "published": None, "error": None},
    ]
    found = prediction_document(
        {"title": "t", "unsupported": None, "identified": True, "assumptions": [], "parameters": [], "rows": rows}
    )
    assert found["verdict"].startswith("1 of 2 ")
    assert [(each["arm"], each["difference"]) for each in found["differences"]["rows"]] == [
        ("a", pytest.approx(10.0)),
        ("b", pytest.approx(10.0)),
    ]
    cells = {each[0]: each[1:] for each in found["tables"][0]["rows"]}
    assert cells["c"][2] is None
    assert "why" in cells["c"][-1]
    assert cells["d"][1:3] == [None, 11.0]
