"""The pages are put together from the tables and pictures of all studies."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from experiments import pages
from experiments.charts import DARK, INK, Panel, Series, draw
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
    line = Series("<a>", [1.0, 10.0, 100.0], [0.0, 5.0, 10.0], [None, 1.0, None])
    bar = Series("b", [0.0], [1.0], [None], 1)
    panels = [
        Panel("lines", "x", [line], [(1.0, "one"), (100.0, "hundred")]),
        Panel("bars", "", [bar], [(0.0, "bar")], bars=True),
    ]
    drawn = draw(panels, tilt=True)
    assert drawn == draw(panels, tilt=True)
    texts = [one for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")]
    assert {"".join(one.itertext()).strip() for one in texts} >= {
        "<a>",
        "b",
        "lines",
        "bars",
        "one",
        "hundred",
        "bar",
        "x",
    }
    assert f'[style*="fill: {INK}"]{{fill:{DARK[INK]} !important}}' in drawn, "dark pages swap its ink"
