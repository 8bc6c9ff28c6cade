"""Names and texts of task files, models and desktops stay text in pages, tables and files."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.observe.report import render_report
from dartsim.observe.rundir import RunDir, write_text
from dartsim.run.execute import execute

HOSTILE = "</script><img src=x onerror=alert(1)><b>[link=file:///etc/passwd]x[/link]"


class Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    import json

    folder = tmp_path_factory.mktemp("run")
    config = from_tree(merge(preset("dart"), {"rollout": {"num_envs": 2, "num_workers": 1}, "run": {"hours": 0.1}}))
    run, _ = execute(config, folder)
    summary = {
        **run.summary,
        "name": HOSTILE,
        "preset": HOSTILE,
        "bias": {HOSTILE: {HOSTILE: {"offered": 1, "trained": 1}}},
        "endings": {HOSTILE: 3},
        "alarms": [
            {
                "name": HOSTILE,
                "found": HOSTILE,
                "since_seconds": 1.0,
                "raised_seconds": 2.0,
                "cleared_seconds": None,
                "likely": HOSTILE,
                "todo": HOSTILE,
                "exit_code": 10,
                "page": HOSTILE,
            }
        ],
    }
    write_text(folder / "summary.json", json.dumps(summary))
    return render_report(RunDir(folder)).read_text(encoding="utf-8")


def test_a_page_runs_nothing_of_what_it_shows(page):
    reader = Elements()
    reader.feed(page)
    assert not [tag for tag, attributes in reader.found if any(name.startswith("on") for name in attributes)]
    assert "img" not in {tag for tag, _ in reader.found}
    assert "</script><img" not in page


def test_a_page_asks_nothing_of_a_network(page):
    reader = Elements()
    reader.feed(page)
    for tag, attributes in reader.found:
        for name in ("src", "href", "action", "data"):
            target = attributes.get(name) or ""
            assert not re.match(r"(?i)(https?:)?//", target), (tag, target)
