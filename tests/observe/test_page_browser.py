"""The page in a real headless Chromium, over documents of a made-up run and of a real one that is killed."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dartsim.cli.live import site_of
from dartsim.config import load
from dartsim.core.png import encode_png
from dartsim.observe.page.documents import states
from dartsim.observe.page.file import page_file
from dartsim.observe.page.runs import Site
from dartsim.observe.page.server import PageServer
from dartsim.observe.rundir import CONFIG, lock_run
from dartsim.observe.states import CAUSES, POPULATIONS
from dartsim.run.watch import Watch
from tests.observe import chromium
from tests.observe.conftest import HOSTILE

VIEWS = ("runs", "now", "schedule", "learning", "attempts", "attempts&group=4", "player&attempt=33&turn=1")

pytestmark = chromium.MARKS


class MadeUpSite(Site):
    """Documents from memory, which a test changes."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.changes: dict[str, int] = {}

    def put(self, path: str, document: Any) -> None:
        self.documents[path] = document
        self.changes[path] = self.changes.get(path, 0) + 1

    def get(self, parts: Any) -> Any:
        return self.documents["/".join(parts)]

    def revision(self, parts: Any) -> str:
        return str(self.changes["/".join(parts)])

    def revisions(self, parts: Any) -> dict[str, str]:
        start = "".join(f"{part}/" for part in parts)
        names = {path.removeprefix(start) for path in self.documents if path.startswith(start)}
        return {name: self.revision([*parts, name]) for name in names if "/" not in name}

    def screen(self, name: str, file: str) -> bytes:
        return encode_png(np.full((36, 64, 3), 128, dtype=np.uint8))


def add_run(
    site: MadeUpSite, run: str, *, desktops: int = 12, hours: float = 1.0, text: str = "Press the button"
) -> None:
    """Put the documents of a run; attempts of eight a group, of which the newest ten have turns."""
    end, rng = hours * 3600, np.random.default_rng(0)
    sizes = {"desktops": desktops, "engines": 2, "trainer": 1}
    site.put(f"{run}/states", states())
    site.put(f"{run}/lanes", lanes(sizes, end))
    for number, chunk in enumerate(site.documents[f"{run}/lanes"]["chunks"]):
        site.put(f"{run}/lanes/{chunk['id']}", stays(sizes, chunk["from"], min(end, chunk["to"]), rng, number))
    site.put(f"{run}/now", now(run, sizes, end, text))
    site.put(f"{run}/series", series(end))
    columns, turns = attempts(text, desktops)
    site.put(f"{run}/attempts", columns)
    for number, document in turns.items():
        site.put(f"{run}/attempt/{number}", document)
    known = site.documents.get("runs", [])
    listed = {"id": run, "name": run, "state": "running", "scheduler": "dart", "seed": 0, "clock": "simulated"}
    listed |= {"seconds": end, "success": 0.6, "figures": {}, "differs": {"run.hours": text}}
    site.put("runs", [*known, listed])


def lanes(sizes: dict[str, int], end: float) -> dict[str, Any]:
    populations = []
    for name, size in sizes.items():
        number, levels = len(POPULATIONS[name].states), []
        for bins in (128, 512, 2048):
            shares = [[0.0] * number for _ in range(bins)]
            for k, row in enumerate(shares):
                row[k % 2], row[2] = 0.4, 0.6
            levels.append({"seconds": end / bins, "from": 0.0, "shares": shares})
        populations.append({"name": name, "size": size, "levels": levels})
    chunks = [{"id": f"512:{k}", "from": 512 * k, "to": 512 * (k + 1)} for k in range(math.ceil(end / 512))]
    marks = [{"seconds": 300.0 * k, "kind": "update", "label": f"update {k}"} for k in range(1, int(end / 300))]
    marks.append({"seconds": 1200.0, "kind": "sync", "label": "weight sync, 20.0 s"})
    return {
        **{"to": end, "populations": populations, "chunks": chunks[-40:], "marks": marks},
        **{"faults": {"vm_hung": [1000.0, 1700.0]}, "faults_from": 0.0},
    }


def stays(sizes: dict[str, int], start: float, end: float, rng: Any, number: int) -> dict[str, Any]:
    populations = {}
    for name, size in sizes.items():
        columns: dict[str, list[Any]] = {key: [] for key in ("member", "state", "start", "end", "attempt")}
        for member in range(size):
            time = start
            while time < end:
                until = min(end, time + float(rng.uniform(8, 30)))
                values = (member, len(columns["member"]) % 5, time, until, member % 40 if name == "desktops" else None)
                for key, value in zip(columns, values, strict=True):
                    columns[key].append(value)
                time = until
        populations[name] = columns
    return {"from": start, "to": end, "populations": populations}


def now(run: str, sizes: dict[str, int], end: float, text: str) -> dict[str, Any]:
    alarm = {"name": "idle", "since_seconds": 600.0, "active": True, "found": text, "likely": text, "todo": text}
    cause = next(iter(CAUSES))
    idle = {
        name: {
            "size": size,
            "seconds": {"at work": size * end / 4, cause: size * end / 4},
            "shares": {cause: [0.5] * 120},
        }
        for name, size in sizes.items()
    }
    waits = {"waits_for": "a reply", "woken_by": "an engine", "component": "slot 1", "detail": text, "since_seconds": 1}
    return {
        **{"name": run, "scheduler": text, "seed": 0, "clock": "simulated", "state": "running", "error": None},
        **{
            "run_seconds": end,
            "as_of_seconds": end,
            "of_seconds": 2 * end,
            "progress": 0.5,
            "eta_seconds": 90.0,
            "figures": {},
        },
        "verdict": f"Limited by the engines: {text}",
        "alarms": [alarm],
        "counts": {"trajectories": 40, "updates": 3, text: 1},
        "waiting": [
            {"population": name, "kind": name, "state": next(iter(POPULATIONS[name].states)).info.label, **waits}
            | {"count": size}
            for name, size in sizes.items()
        ],
        "idle": {"start_seconds": end / 2, "end_seconds": end, "populations": idle},
    }


def series(end: float) -> dict[str, Any]:
    seconds = [end * k / 10 for k in range(1, 11)]
    rising = [k / 10 for k in range(10)]
    axes = {"version": list(range(10)), "seconds": seconds, "samples": [120 * k for k in range(10)]}
    bands = {"low": [max(0.0, y - 0.1) for y in rising], "high": [y + 0.1 for y in rising]}
    thirds = dict.fromkeys(("hard", "middle", "easy"), [1 / 3] * 10)
    return {
        "seconds": seconds,
        "rates": {"generated_turns_per_minute": rising},
        "utilization": {"env_utilization": rising, "gpu_utilization": rising},
        "updates": {**axes, "reward": rising, "loss": [None, *rising[1:]], "entropy": rising, "kl": [None] * 10},
        "success": {**axes, **bands, "rate": rising, "tasks": 128},
        "played": {**axes, **bands, "rate": rising},
        "difficulty": {"version": axes["version"], "seconds": seconds, **thirds},
    }


def attempts(text: str, desktops: int) -> tuple[dict[str, Any], dict[int, Any]]:
    columns: dict[str, list[Any]] = {}
    turns = {}
    for number in range(40):
        masked, turned = number % 8 == 7, number >= 30
        row = {
            **{"attempt": number, "task": f"task-{number // 8}", "group": number // 8, "version": number // 8},
            **{"oldest": 0, "newest": 0, "ending": "broken" if masked else "done", "cause": text if masked else None},
            **{"reward": None if masked else float(number % 2), "num_turns": 3, "started": 60.0 * number, "index": 0},
            **{"finished": 60.0 * number + 50, "slot": number % desktops, "reason": "masked" if masked else None},
            **{"state": "dropped" if masked else "trained", "update": 1, "staleness": number % 3, "advantage": 0.5},
            "has_turns": turned,
        }
        for key, value in row.items():
            columns.setdefault(key, []).append(value)
        kept = (
            {"turns_missing": None, "turns": played(number, text)} if turned else {"turns_missing": text, "turns": []}
        )
        turns[number] = {**row, "instruction": text, **kept}
    return {"total": 40, **columns}, turns


def played(number: int, text: str) -> list[dict[str, Any]]:
    operations = [
        {"kind": "click", "points": [[0.25, 0.5]], "button": "left"},
        {"kind": "drag", "points": [[0.1, 0.1], [0.9, 0.8]], "button": "left"},
        {"kind": "type", "points": [], "text": text},
    ]
    return [
        {
            **{"number": k, "started": 60.0 * number + 9 * k, "action": f"{operation['kind']} {number if k else ''}"},
            **{"model_seconds": 3.0, "desktop_seconds": 2.0, "advantage": 0.5, "kept": k != 1, "thought": text},
            **{"reply": text, "draw": [operation], "size": [64, 36], "prompt_tokens": 900},
            **{"logprobs": [-0.1, -2.0, -0.5], "entropies": [0.3, None, 1.0], "response_tokens": 3, "version": 4},
            **{"tokens": ["Cl", "ick\n", text], "screen": f"{k}" * 64},
        }
        for k, operation in enumerate(operations)
    ]


class Visitor(chromium.Visitor):
    """Opens views."""

    def __init__(self, context: Any, address: str) -> None:
        super().__init__(context, address.split("?")[0])
        self.address = address

    def open(self, view: str, runs: str = "dart") -> Any:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#runs={runs}&view={view}")
        self.page.wait_for_selector(f"main[data-drawn={view.split('&')[0]}]")
        return self.page


def until(page: Any, condition: str) -> None:
    """Wait for a condition; the page's policy forbids playwright to evaluate text inside it."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.options())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Site], PageServer]]:
    """Return a function that serves a site until the module's tests are done."""
    servers = []

    def start(site: Site) -> PageServer:
        server = PageServer(site)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.close()


@pytest.fixture(scope="module")
def site(serve: Any) -> tuple[MadeUpSite, str]:
    site = MadeUpSite()
    add_run(site, "dart")
    add_run(site, "big", desktops=1000, hours=24.0)
    add_run(site, "hostile", text=HOSTILE)
    return site, serve(site).url


@pytest.fixture
def visit(browser: Any, site: tuple[MadeUpSite, str]) -> Iterator[Callable[..., Visitor]]:
    contexts = []

    def visit(address: str = site[1], **options: Any) -> Visitor:
        contexts.append(browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options}))
        return Visitor(contexts[-1], address)

    yield visit
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_silent_and_accessible(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visitor = visit(color_scheme=scheme)
    for view in VIEWS:
        found = axe.run(visitor.open(view)).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], view
    visitor.check()


def test_a_file_holds_the_same_page(visit, site, tmp_path):
    documents = {path: document for path, document in site[0].documents.items() if path.startswith("dart/")}
    path = tmp_path / "run.html"
    path.write_text(page_file({**documents, "runs": site[0].documents["runs"][:1]}), encoding="utf-8")
    visitor = visit(path.as_uri())
    for view in VIEWS[1:]:
        visitor.open(view, runs="")
    assert visitor.page.get_by_text("No screenshot of this turn is kept").is_visible()
    visitor.check()


@pytest.mark.parametrize("width", [360, 1900])
def test_nothing_is_cut(visit, width):
    visitor = visit(viewport={"width": width, "height": 800})
    for view in VIEWS:
        page = visitor.open(view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_an_attempt_is_stepped_through(visit):
    visitor = visit()
    page = visitor.open("player&attempt=33")
    until(page, "document.querySelector('.screen img')?.naturalWidth === 64")
    box, point = page.locator(".screen").bounding_box(), page.locator(".point").bounding_box()
    assert point["x"] + point["width"] / 2 == pytest.approx(box["x"] + box["width"] / 4, abs=1)
    assert page.get_by_text("What made the difference?").locator("a").all_inner_texts() == ["turn 2", "attempt 32"]
    assert page.locator(".tokens span").all_inner_texts() == ["Cl", "ick↵", "Press·the·button"]
    page.keyboard.press("ArrowRight")
    page.get_by_text("turn 2 of 3").wait_for()
    assert page.locator(".screen svg line").count() == 1
    page.get_by_label("Turn", exact=True).focus()
    page.keyboard.press("End")
    page.get_by_text("turn 3 of 3").wait_for()
    assert page.locator(".typed").inner_text() == "“Press the button”"
    page.keyboard.press("]")
    page.get_by_role("heading", name="Attempt 34").wait_for()
    page.keyboard.press("g")
    page.get_by_role("heading", name="Group 4").wait_for()
    visitor.check()


def test_attempts_are_filtered_and_set_side_by_side(visit):
    visitor = visit()
    page = visitor.open("attempts")
    page.get_by_label("Outcome").select_option("broken")
    page.get_by_text("5 of 40 attempts").wait_for()
    assert page.locator("tbody tr").count() == 5
    page.get_by_role("link", name="4", exact=True).first.click()
    page.get_by_role("heading", name="Group 4").wait_for()
    assert page.locator(".side .panel").count() == 8
    assert page.locator(".parts").count() == 7  # all but the best leave it at their second turn
    visitor.check()


def test_the_schedule_zooms_from_a_day_to_a_stay_and_opens_its_attempt(visit):
    visitor = visit()
    page = visitor.open("schedule", runs="big")
    canvas = page.locator("lanes-plot canvas")
    page.evaluate("document.querySelector('lanes-plot').frames = []")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 100, box["y"] + 200)
    for _ in range(40):
        page.mouse.wheel(0, -100)
    until(page, "(([a, b]) => b - a)(document.querySelector('lanes-plot').view) < 60")
    page.wait_for_timeout(300)
    frames = sorted(page.evaluate("document.querySelector('lanes-plot').frames"))
    assert frames[len(frames) // 2] < 16
    page.get_by_text("Table").click()
    page.get_by_role("cell", name="desktops 0").first.wait_for()
    canvas.click(position={"x": box["width"] - 100, "y": 200})
    page.wait_for_selector("main[data-drawn=player]")
    visitor.check()


def test_the_schedule_is_moved_by_keys(visit):
    page = visit().open("schedule")
    page.locator("lanes-plot canvas").focus()
    view = page.evaluate("document.querySelector('lanes-plot').view")
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    near = page.evaluate("document.querySelector('lanes-plot').view")
    assert near[1] - near[0] == pytest.approx(0.6 * (view[1] - view[0]))
    page.get_by_text("2 masked attempts: vm_hung 2").wait_for()
    page.get_by_label("Go to").fill("00:30")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('lanes-plot').view") == [1650, 1950]
    until(page, "location.hash.includes('from=1650.00')")  # a link shows the same
    page.get_by_text("In view, 00:27:30 to 00:32:30").wait_for()
    page.get_by_text("1 masked attempts: vm_hung 1").wait_for()
    page.get_by_role("link", name="attempts that ended then").click()
    page.get_by_text("5 of 40 attempts").wait_for()
    page.get_by_text("which ended from 00:27:30 to 00:32:30").wait_for()


def test_curves_of_several_runs_are_over_one_another(visit):
    visitor = visit()
    page = visitor.open("learning&over=version", runs="dart,hostile")
    assert page.locator("lines-plot").count() >= 6
    names = page.evaluate("document.querySelector('lines-plot').data.lines.map((line) => line.name)")
    assert names == ["dart", "hostile"]
    visitor.check()


def test_what_a_run_holds_is_text(visit):
    visitor = visit()
    for view in VIEWS:
        page = visitor.open(view, runs="hostile")
        assert HOSTILE in page.locator("main").inner_text() or view in ("schedule", "learning")
        assert page.locator("main script, main img[src=x]").count() == 0
        assert page.title() != "owned"
    visitor.check()


def test_changes_reach_ten_viewers_and_one_who_comes_late(visit, serve):
    site = MadeUpSite()
    add_run(site, "dart")
    server = serve(site)
    viewers = [visit(server.url) for _ in range(10)]
    for viewer in viewers:
        viewer.open("now")
    site.put("dart/now", {**site.documents["dart/now"], "state": "crashed", "error": "it was killed"})
    late = visit(server.url)
    late.open("now")
    for viewer in (late, *viewers):
        page = viewer.page
        page.locator(".badge", has_text="crashed").wait_for()
        assert page.get_by_role("alert").inner_text() == "it was killed"
        viewer.check()
    server.shutdown()
    server.close()
    page.get_by_text("the server is gone").wait_for()


def test_a_hostile_directory_is_text_or_refused(visit, serve, hostile):
    """The page by the real documents: script in texts, turns of another kind, a picture of 100 MP, a link."""
    visitor = visit(serve(site_of([hostile], hostile.parent)).url)
    for view in ("now", "schedule", "learning", "attempts", "player&attempt=1"):
        page = visitor.open(view, runs="run")
        assert page.locator("main script, main img").count() == 0
    page.get_by_text("not what was recorded").wait_for()
    for turn in range(2):
        page = visitor.open(f"player&attempt=2&turn={turn}", runs="run")
        page.get_by_text("No screenshot of this turn is kept.").wait_for()
        assert HOSTILE in page.locator("main").inner_text()
    assert page.title() != "owned"
    visitor.check()
    for name in ("run.db", "states.bin", "segments.bin", "metrics.jsonl"):
        (hostile / name).write_bytes(b"[" * 1000)
    for view in ("now", "schedule", "learning", "attempts", "player&attempt=2"):
        assert visitor.open(view, runs="run").locator("main").inner_text()


def test_a_run_that_is_killed_while_it_is_watched(visit, serve, tmp_path):
    """The page of a real run, from its own files, by the real documents."""
    command = [sys.executable, "-m", "dartsim", "run", "coupled", "--hours", "400", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "run" / "status.json").is_file():
            assert process.poll() is None
            threading.Event().wait(0.1)
        visitor = visit(serve(site_of([tmp_path / "run"], tmp_path)).url)
        page = visitor.open("now", runs="run")
        page.locator(".badge", has_text="running").wait_for()
        page.locator(".verdict").wait_for()  # what limits it stands there while it runs
        for view in ("schedule", "learning", "attempts"):
            visitor.open(view, runs="run")
        page = visitor.open("now", runs="run")
        process.send_signal(signal.SIGKILL)
        page.locator(".badge", has_text="crashed").wait_for()
        visitor.check()
    finally:
        process.kill()
        process.wait()


def test_a_run_that_is_watched_from_before_its_first_status(visit, serve, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / CONFIG).touch()
    with lock_run(folder):
        page = visit(serve(site_of([folder], tmp_path)).url).open("now", runs="run")
        page.get_by_role("alert").filter(has_text="is starting").wait_for()
        with Watch(load("dart"), folder):
            page.locator(".badge", has_text="starting").wait_for()


def test_a_study_shows_arms_differences_and_tables(visit, tmp_path):
    line = {
        "over": "hours",
        "x": [1.0, 2.0, 3.0],
        "y": [5.0, 6.0, 7.0],
        "low": [4.0, 5.0, 6.0],
        "high": [6.0, 7.0, 8.0],
    }
    apart = {"figure": "turns/min", "arm": "ours", "against": "theirs", "difference": -2.0, "low": -3.0, "high": -1.0}
    ranks = [{"rank": 1, "score": 7.0, "low": 6.0, "high": 8.0, "verdict": "best"}]
    ranks.append({"rank": None, "score": None, "low": None, "high": None, "verdict": "failed: " + HOSTILE})
    document = {
        **{"title": "ours and theirs", "verdict": "theirs is the best", "notes": [HOSTILE], "runs": ["dart"]},
        "arms": [{"name": name, "lines": {"turns/min": line}} for name in ("theirs", HOSTILE)],
        "differences": {"title": "Differences", "rows": [{**apart, "unit": "/min"}]},
        "ranking": [{**rank, "arm": name} for rank, name in zip(ranks, ("theirs", HOSTILE), strict=True)],
        "tables": [{"title": "Schedulers", "heads": ["", "#ours"], "rows": [["GPUs busy, %", 63.74], ["bound", None]]}],
    }
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    path = tmp_path / "study.html"
    path.write_text(page_file({"study": document}), encoding="utf-8")
    for width in (360, 1400):
        visitor = visit(path.as_uri(), viewport={"width": width, "height": 800})
        page = visitor.open("study", runs="")
        assert page.locator("lines-plot").count() == 1
        assert page.get_by_role("cell", name="-3 to -1").is_visible()
        assert page.get_by_role("cell", name="63.7").is_visible()
        assert page.get_by_text(HOSTILE).count() > 2
        assert page.title() != "owned"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [
            each for each in axe.run(page).response["violations"] if each["impact"] in ("serious", "critical")
        ] == []
        visitor.check()
