"""The pages are put together from the tables and pictures of all studies."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from experiments import pages
from experiments.charts import DARK, INK, Panel, Series, boxes, draw, drawing, label_axes
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


def test_a_picture_keeps_its_words_and_numbers_is_the_same_twice_and_swaps_its_ink_on_dark_pages():
    pytest.importorskip("matplotlib")

    @drawing(3.0)
    def paint(figure, found):
        axes = figure.subplots()
        axes.plot([0.0, 1.0], found["ys"], label="<a>")
        boxes(axes, [(0.0, 0.0, 0.123456, 0.5), (0.5, 0.0, 0.25, 0.5)], "#3b82d6", "both")
        axes.set_xticks([0.125], ["0.125"])
        axes.annotate("here", (0.0, 0.0))
        label_axes(axes, "title", "x, seconds", "y, MB")
        axes.legend()

    drawn = paint({"ys": [1.0, 2.0]})
    assert drawn == paint({"ys": [1.0, 2.0]}) != paint({"ys": [1.0, 3.0]})
    said = {"".join(one.itertext()).strip() for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")}
    assert {"<a>", "both", "0.125", "here", "title", "x, seconds", "y, MB"} <= said
    assert drawn.count('style="fill: #3b82d6') == 2, "two boxes are one path; the other is the legend's"
    assert f'[style*="fill: {INK}"]{{fill:{DARK[INK]} !important}}' in drawn
    assert not re.search(r'="[^"]*\d\.\d{2}[^"]*"', drawn), "coordinates are rounded"


def test_panels_hold_their_words_and_are_the_same_twice():
    line = Series("<a>", [1.0, 10.0, 100.0], [0.0, 5.0, 10.0], [None, 1.0, None])
    other = Series("b", [0.0], [1.0], [None], 1)
    panels = [
        Panel("lines", "x", [line], [(1.0, "one"), (100.0, "hundred")]),
        Panel("bars", "", [other], [(0.0, "bar")], bars=True),
    ]
    drawn = draw(panels, tilt=True)
    assert drawn == draw(panels, tilt=True)
    said = {"".join(one.itertext()).strip() for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")}
    assert {"<a>", "b", "lines", "bars", "one", "hundred", "bar", "x"} <= said
