"""The pages are put together from the tables and pictures of all studies."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from experiments import pages
from experiments.charts import DARK, INK, drawing, legend_below
from experiments.reference import TABLES


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


def test_a_picture_holds_its_words_and_is_the_same_twice():
    pytest.importorskip("matplotlib")

    @drawing(3.0)
    def paint(figure, names):
        axes = figure.subplots()
        for label, values in {"<a>": [1.0, 2.0], "b": [3.0, 4.0]}.items():
            axes.plot(names, values, label=label)
        axes.set_title("a title")
        legend_below(figure)

    drawn = paint(["one", "hundred"])
    assert drawn == paint(["one", "hundred"])
    texts = [one for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")]
    assert {"".join(one.itertext()).strip() for one in texts} >= {"<a>", "b", "a title", "one", "hundred"}
    assert f'[style*="fill: {INK}"]{{fill:{DARK[INK]} !important}}' in drawn, "dark pages swap its ink"
