"""The pages are put together from the tables of all families, and each mark names one."""

from __future__ import annotations

import importlib
import json

import pytest

from dartsim.observe.json_text import json_text
from experiments import domain_hashes, pages
from experiments.common import RECORDED

FAMILIES = sorted(file.stem for file in (pages.ROOT / "experiments").glob("*_tables.py"))


def names(family: str) -> set[str]:
    """Return what a family calls its tables."""
    return set(importlib.import_module(f"experiments.{family}").TABLES)


def test_every_family_is_put_in_and_no_two_make_the_same_table():
    by_family = {family: names(family) for family in FAMILIES}
    assert sum(map(len, by_family.values())) + len(pages.LINKS) == len(pages.TABLES)
    assert set().union(*by_family.values(), pages.LINKS) == set(pages.TABLES)


def test_every_table_is_quoted_and_every_mark_names_a_table():
    marks = [
        match["name"]
        for page in pages.PAGES
        for match in pages.MARKED.finditer((pages.ROOT / page).read_text(encoding="utf-8"))
    ]
    assert set(marks) == set(pages.TABLES)


def test_a_mark_that_names_no_table_is_an_error():
    with pytest.raises(KeyError, match="no-such"):
        pages.render("<!-- figures: no-such -->\n<!-- end -->")


@pytest.mark.parametrize("file", sorted(set(RECORDED.glob("*.json")) - {domain_hashes.RECORDED}), ids=lambda f: f.stem)
def test_recorded_files_are_as_the_one_writer_writes_them(file):
    text = file.read_text(encoding="utf-8")
    assert text == json_text(json.loads(text))
