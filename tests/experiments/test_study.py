"""Cells and rows of tables, and the command line that all studies share."""

import json

import pytest

from experiments.study import Experiment, cell, json_text, markdown, rows_of


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("{name}: {number:,.1f}", "a: 1,234.5"),
        ("{share:.1p}", "12.5"),
        ("{inner[x]:g}", "3"),
        ("{mean:.1f}", "2.0 ±0.5"),
        ("{one:.0p}", "200"),
        ("{nothing:.1f}", "–"),
        ("{number:.0f} of {nothing}", "–"),
        ("{absent}", "–"),
        ("{inner[y]}", "–"),
        ("{nothing[x]}", "–"),
        ("{no_mean:.1f}", "–"),
    ],
)
def test_a_cell_shows_a_dash_where_a_figure_is_missing(pattern, shown):
    figures = {
        "name": "a",
        "number": 1234.5,
        "share": 0.125,
        "inner": {"x": 3.0},
        "mean": {"mean": 2.0, "half_width": 0.5},
        "one": {"mean": 2.0, "half_width": None},
        "no_mean": {"mean": None, "half_width": None},
        "nothing": None,
    }
    assert cell(pattern, figures) == shown


def test_rows_are_one_pattern_per_column():
    rows = rows_of({"": "`{name}`", "number": "{number:.1f}"}, [{"name": "a", "number": 1.0}, {"name": "b"}])
    assert rows == (["", "number"], [["`a`", "1.0"], ["`b`", "–"]])
    assert markdown(rows) == "|  | number |\n| --- | ---: |\n| `a` | 1.0 |\n| `b` | – |\n"


def study(**more):
    return Experiment(
        name="x",
        about="What x is.\n\nMore.",
        measure=lambda options: {"quick": options.quick, "own": getattr(options.own, "size", None)},
        seeds=5,
        quick_seeds=2,
        **more,
    )


def test_a_study_writes_its_figures_with_what_made_them(tmp_path):
    written = study().run(["--quick", "--json", str(tmp_path / "x.json")])
    assert written["seeds"] == [0, 1]
    assert {"commit", "versions", "machine"} <= written.keys()
    assert json.loads((tmp_path / "x.json").read_text()) == written


def test_a_study_adds_options_and_may_record_under_another_name(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.study.RECORDED", tmp_path)
    own = study(
        add_arguments=lambda parser: parser.add_argument("--size", type=int),
        record_as=lambda options: f"x_{options.size}",
    )
    assert own.run(["--size", "7", "--record"])["own"] == 7
    assert json.loads((tmp_path / "x_7.json").read_text())["seeds"] == [0, 1, 2, 3, 4]


def test_quick_figures_are_not_recorded():
    with pytest.raises(SystemExit, match="leave --quick out"):
        study().run(["--quick", "--record"])


def test_floats_have_six_digits_and_integers_all():
    value = {"rate": 123.4567891, "small": 1.23456789e-9, "seed": 1234567890123, "hash": "1234567.891", "yes": True}
    assert json.loads(json_text(value)) == {**value, "rate": 123.457, "small": 1.23457e-9}
