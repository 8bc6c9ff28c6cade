"""Figures as JSON: one object per line, six digits, exact integers and strings."""

from __future__ import annotations

import json

import pytest

from dartsim.observe.json_text import json_text


def test_each_record_of_a_list_and_each_top_level_key_has_a_line():
    figures = {"runs": [{"arm": "a", "curve": {"x": [1, 2], "y": [0.5, 0.25]}}, {"arm": "b"}], "seeds": [0, 1]}
    assert json_text(figures).splitlines() == [
        "{",
        ' "runs": [',
        '  {"arm": "a", "curve": {"x": [1, 2], "y": [0.5, 0.25]}},',
        '  {"arm": "b"}',
        " ],",
        ' "seeds": [0, 1]',
        "}",
    ]


def test_a_long_object_of_objects_has_a_line_per_key_and_one_of_plain_values_has_one():
    long = {"figures": {f"figure {n}": {"mean": n, "half_width": n} for n in range(9)}, "versions": {"x" * 200: "1"}}
    lines = json_text(long).splitlines()
    assert lines[1:3] == [' "figures": {', '  "figure 0": {"mean": 0, "half_width": 0},']
    assert lines[-2] == f' "versions": {{"{"x" * 200}": "1"}}'
    assert json.loads(json_text(long)) == long


def test_floats_have_six_digits_and_integers_all():
    value = {"rate": 123.4567891, "small": 1.23456789e-9, "seed": 1234567890123, "hash": "1234567.891", "yes": True}
    assert json.loads(json_text(value)) == {**value, "rate": 123.457, "small": 1.23457e-9}


def test_writing_again_changes_nothing():
    value = {"runs": [{"x": 1 / 3}], "deep": {"a": {"b": 2 / 3}}}
    assert json_text(json.loads(json_text(value))) == json_text(value)


def test_a_figure_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match="JSON"):
        json_text({"rate": float("nan")})
