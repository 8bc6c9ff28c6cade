"""The pages are put together from the tables of all families, and each mark names one."""

from __future__ import annotations

import importlib
import json

import pytest

from dartsim.observe.rundir import json_text
from experiments import pages
from experiments.study import RECORDED

STUDIES = sorted(
    file.stem
    for file in (pages.ROOT / "experiments").glob("*.py")
    if "STUDY = Experiment(" in file.read_text(encoding="utf-8")
)


def test_every_study_with_tables_is_put_in():
    quoted = {name for name in STUDIES if importlib.import_module(f"experiments.{name}").STUDY.tables}
    assert set(pages.STUDIES) == quoted - {"gpu"}, "figures of a GPU are printed and recorded, but on no page"


def test_every_table_is_quoted_and_every_mark_names_a_table():
    marks = [
        match["name"]
        for page in pages.PAGES
        for match in pages.MARKED.finditer((pages.ROOT / page).read_text(encoding="utf-8"))
    ]
    assert set(marks) == set(pages.tables())


def test_a_mark_that_names_no_table_is_an_error():
    with pytest.raises(KeyError, match="no-such"):
        pages.render("<!-- figures: no-such -->\n<!-- end -->")


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda f: f.stem)
def test_recorded_files_are_as_the_one_writer_writes_them(file):
    text = file.read_text(encoding="utf-8")
    assert text == json_text(json.loads(text))
