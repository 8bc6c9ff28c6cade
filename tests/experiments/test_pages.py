"""The pages are put together from the tables and pictures of all studies."""

from __future__ import annotations

import json

import pytest

from dartsim.observe.rundir import json_text
from experiments import pages
from experiments.reference import TABLES
from experiments.study import RECORDED


def test_every_mark_names_a_table_or_a_picture_and_every_picture_is_shown():
    found = [match["name"] for page in pages.pages() for match in pages.MARKED.finditer(page.read_text("utf-8"))]
    assert set(found) <= {*pages.marks(), *TABLES}
    assert set(found) >= set(TABLES)
    assert not pages.marks().keys() & TABLES.keys()
    pictures = {f"{name}-picture" for study in pages.marks().values() for name in study.pictures}
    assert pictures <= set(found)


def test_a_mark_that_names_no_table_is_an_error():
    with pytest.raises(KeyError, match="no-such"):
        pages.render("<!-- figures: no-such -->\n<!-- end -->")


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda f: f.stem)
def test_recorded_files_are_as_the_one_writer_writes_them(file):
    text = file.read_text(encoding="utf-8")
    assert text == json_text(json.loads(text))
