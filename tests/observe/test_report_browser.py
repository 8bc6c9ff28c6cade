"""The pages in a real headless Chromium: drawn, silent, offline, and answering the pointer."""

from __future__ import annotations

import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dartsim.observe.report import render_comparison

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path: apt-get install chromium"),
]


class Visitor:
    """Opens pages and keeps what they complain of and ask for."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.addresses: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.addresses.append(request.url))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]")
        return self.page

    def check(self) -> None:
        assert self.complaints == []
        assert [address for address in self.addresses if not address.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # A folder of its own and nothing else: no profile of a person is touched.
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=CHROMIUM,
            headless=True,
            args=list(FLAGS),
            viewport={"width": 1400, "height": 1000},
            color_scheme="light",
            env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
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


def colors(png: bytes) -> Counter[tuple[int, int, int]]:
    """Return how many pixels of a screenshot have each colour."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=np.uint32)
    found, number = np.unique(pixels @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32), return_counts=True)
    return Counter({(c >> 16, c >> 8 & 255, c & 255): n for c, n in zip(found.tolist(), number.tolist(), strict=True)})


def rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def test_the_report_is_drawn_in_silence_and_offline(visitor: Visitor, folder: Path):
    page = visitor.open(folder / "dart" / "report.html")
    plots = page.locator("[data-plot]")
    assert plots.count() == 13
    for index in range(plots.count()):
        assert plots.nth(index).locator("svg.main-svg").count() >= 1
    seen = colors(page.screenshot(full_page=True))
    for state in ("#0072b2", "#009e73", "#7a5cc9", "#d55e00"):
        assert seen[rgb(state)] > 2000, state
    visitor.check()


def test_a_bar_tells_what_it_is(visitor: Visitor, folder: Path):
    page = visitor.open(folder / "dart" / "report.html")
    bar = page.locator("#plot-states .bars .point path").nth(2)
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#plot-states .hoverlayer .hovertext")
    assert "waits for a reply while the engines serve" in page.locator("#plot-states .hovertext").text_content()
    visitor.check()


def test_a_card_tells_its_definition(visitor: Visitor, folder: Path):
    page = visitor.open(folder / "dart" / "report.html")
    card = page.locator('.card[data-figure="env_utilization"]')
    assert not card.locator(".tip").is_visible()
    card.hover()
    card.locator(".tip").wait_for(state="visible")
    assert "over provisioned desktop time" in card.locator(".tip").text_content()
    visitor.check()


def test_the_timeline_can_be_hovered_and_zoomed(visitor: Visitor, folder: Path):
    page = visitor.open(folder / "dart" / "report.html")
    canvas = page.locator(".timeline canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    before = colors(canvas.screenshot())
    page.mouse.move(box["x"] + 600, box["y"] + 15)
    bubble = page.locator(".bubble")
    bubble.wait_for(state="visible")
    assert bubble.text_content().strip().startswith("trainer: ")
    page.mouse.move(box["x"] + 600, box["y"] + box["height"] - 60)
    assert "desktop " in bubble.text_content()
    page.mouse.down()
    page.mouse.move(box["x"] + 640, box["y"] + box["height"] - 60, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    # Zoomed in, fewer pixels are mixtures of two states.
    assert len(colors(canvas.screenshot())) < len(before)
    page.mouse.dblclick(box["x"] + 600, box["y"] + 15)
    visitor.check()


def test_the_timeline_stays_fluid(visitor: Visitor, make_run: Any, tmp_path: Path):
    run = make_run(tmp_path, num_envs=60, num_workers=4, hours=1.0, max_segments=30_000)
    assert run.timeline is not None
    drawn = sum(len(track["states"]) for part in run.timeline["populations"] for track in part["tracks"])
    assert drawn > 20_000
    page = visitor.open(run.report)
    page.locator(".timeline canvas").scroll_into_view_if_needed()
    # Each click draws every stay that is in view; the next frame comes after it.
    milliseconds = page.evaluate(
        """async () => {
            const frame = () => new Promise(requestAnimationFrame), took = [];
            const all = document.querySelector('[data-zoom="all"]');
            for (let n = 0; n < 12; n++) {
                all.click();
                const start = performance.now();
                await frame();
                await frame();
                took.push(performance.now() - start);
            }
            return took.sort((a, b) => a - b)[6];
        }"""
    )
    assert milliseconds < 400
    visitor.check()


@pytest.mark.parametrize(("scheme", "background"), [("light", "#f4f6f9"), ("dark", "#0e131a")])
def test_the_page_follows_the_readers_theme(visitor: Visitor, folder: Path, scheme: str, background: str):
    visitor.page.emulate_media(color_scheme=scheme)
    page = visitor.open(folder / "dart" / "report.html")
    (most, _), *_ = colors(page.screenshot()).most_common(1)
    panel = {"light": "#ffffff", "dark": "#161d27"}[scheme]
    assert most in (rgb(background), rgb(panel))
    ink = page.evaluate("getComputedStyle(document.querySelector('#plot-throughput .legendtext')).fill")
    assert ink == {"light": "rgb(23, 32, 46)", "dark": "rgb(229, 235, 243)"}[scheme]
    visitor.check()


def test_the_comparison_is_drawn_in_silence_and_offline(visitor: Visitor, folder: Path):
    page = visitor.open(folder / "comparison.html")
    assert page.locator(".timeline canvas").count() == 2
    assert page.locator("#table thead th").all_text_contents() == ["", "coupled", "dart", "ratio"]
    seen = colors(page.screenshot(full_page=True))
    for color in ("#8c97a8", "#4f5bd5", "#e69f00", "#0072b2", "#88ccee", "#7a5cc9"):
        assert seen[rgb(color)] > 500, color
    bar = page.locator("#plot-efficiency1 .bars .point path").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#plot-efficiency1 .hoverlayer .hovertext")
    assert "coupled" in page.locator("#plot-efficiency1 .hovertext").first.text_content()
    visitor.check()
