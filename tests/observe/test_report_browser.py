"""The pages in a real headless Chromium: drawn, silent and offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dartsim.observe.report import render_comparison
from tests.observe import chromium

pytestmark = chromium.MARKS


class Visitor(chromium.Visitor):
    """Opens files."""

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]")
        return self.page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # A folder of its own and nothing else: no profile of a person is touched.
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            viewport={"width": 1400, "height": 1000},
            color_scheme="light",
            **chromium.options(),
        )
        yield context
        context.close()


@pytest.fixture
def visitor(browser: Any) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    visitor.page.close()


@pytest.fixture(scope="module")
def folder(make_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    runs = [make_run(folder / name, preset=name, seed=3) for name in ("coupled", "dart")]
    published = {"coupled": {"env_utilization": 0.122}, "dart": {"env_utilization": 0.677}}
    render_comparison(runs, folder / "comparison.html", published=published)
    return folder


def test_the_report_is_drawn_in_silence_and_offline(visitor: Visitor, folder: Path):
    plots = visitor.open(folder / "dart" / "report.html").locator("[data-plot]")
    assert plots.count()
    assert all(plots.nth(index).locator("svg.main-svg").count() for index in range(plots.count()))
    visitor.check()


def test_the_comparison_is_drawn_in_silence_and_offline(visitor: Visitor, folder: Path):
    page = visitor.open(folder / "comparison.html")
    assert page.locator(".timeline canvas").count() == 2
    assert page.locator("svg.main-svg").count()
    visitor.check()
