import asyncio
import json
import socket
import time
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("httpx")

import httpx

from dartsim.core.types import Task
from dartsim.real.osworld.chrome import Tabs, same_page
from dartsim.real.osworld.errors import SetupFailed
from dartsim.real.osworld.ready import Readiness
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import ServerTraits

CONTAINERS = Path(__file__).parents[1] / "containers" / "conftest.py"


class Chrome:
    """Chrome's debugging port, in memory. ``silent`` calls fail first; a page takes ``loading`` looks to load."""

    def __init__(self, *urls, silent=0, loading=1, broken=()):
        self.tabs = [{"id": str(n), "type": "page", "url": url, "title": "T"} for n, url in enumerate(urls)]
        self.silent, self.loading, self.broken = silent, loading, broken
        self.looks = {}

    async def handle(self, request):
        if self.silent:
            self.silent -= 1
            raise httpx.ConnectError("nobody listens")
        path = request.url.path
        if path == "/json/list":
            return httpx.Response(200, json=[self.shown(tab) for tab in self.tabs] + [{"type": "iframe", "id": "f"}])
        if path == "/json/new":
            assert request.method == "PUT"
            url = unquote(request.url.query.decode())
            self.tabs.append({"id": str(len(self.looks) + 100), "type": "page", "url": url, "title": "T"})
            self.looks[self.tabs[-1]["id"]] = 0
            return httpx.Response(200, json=self.tabs[-1])
        assert path.startswith("/json/close/")
        self.tabs = [tab for tab in self.tabs if tab["id"] != path.rpartition("/")[2]]
        return httpx.Response(200, text="Target is closing")

    def shown(self, tab):
        if tab["id"] in self.looks:
            self.looks[tab["id"]] += 1
            if self.looks[tab["id"]] <= self.loading:
                return tab | {"url": "about:blank", "title": ""}
        return tab | {"url": "chrome-error://chromewebdata/"} if tab["url"] in self.broken else tab

    def client(self):
        return Tabs("http://127.0.0.1:9222/", transport=httpx.MockTransport(self.handle))

    def urls(self):
        return [tab["url"] for tab in self.tabs]


async def test_tabs_open_in_order_and_the_first_one_goes():
    chrome = Chrome("chrome://newtab/")
    await chrome.client().open(["https://a/?q=x%20y#z", "https://b/"])
    assert chrome.urls() == ["https://a/?q=x%20y#z", "https://b/"]


async def test_chrome_may_take_its_time_to_start():
    chrome = Chrome("chrome://newtab/", silent=14)
    await chrome.client().open(["https://a/"])
    assert asyncio.get_running_loop().time() >= 70.0


async def test_no_chrome_is_a_failed_set_up():
    with pytest.raises(SetupFailed, match="ConnectError") as caught:
        await Chrome(silent=99).client().open(["https://a/"])
    assert caught.value.cause == "setup_tabs_failed"


def test_a_chrome_that_never_answers_is_a_failed_set_up(monkeypatch):
    monkeypatch.setattr("dartsim.real.osworld.chrome.CALL_SECONDS", 0.2)

    async def ask(port):
        async with asyncio.timeout(5.0):
            await Tabs(f"http://127.0.0.1:{port}").pages()

    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(SetupFailed) as caught:
        asyncio.run(ask(silent.getsockname()[1]))
    assert caught.value.cause == "setup_tabs_failed"


async def test_a_page_that_cannot_be_loaded_is_a_failed_set_up():
    with pytest.raises(SetupFailed, match="https://a/"):
        await Chrome("x", broken=["https://a/"]).client().open(["https://a/"])


async def test_a_page_that_never_ends_to_load_is_left_to_it():
    chrome = Chrome("x", loading=10_000)
    await chrome.client().open(["https://a/"])
    assert asyncio.get_running_loop().time() == pytest.approx(60.0, abs=1.0)


async def test_tabs_close_by_their_page():
    chrome = Chrome("https://www.a.com/", "https://b.org/x", "https://b.org/x", "https://c.net/")
    await chrome.client().close(["http://nobody/", "https://b.org/x", "https://a.co.uk"])
    assert chrome.urls() == ["https://b.org/x", "https://c.net/"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://www.a.com/", "https://a.com", True),
        ("https://a.com.sg/x", "https://a.com/x", True),
        ("https://a.com/x", "https://a.com/y", False),
        ("http://a.com", "https://a.com", False),
        ("a.com/x", "http://a.com/x", True),
        ("https://mail.a.com", "https://a.com", False),
        ("https://a.com/?q=1", "https://a.com/?q=2", False),
    ],
)
def test_the_country_of_a_site_does_not_matter(one, other, same):
    assert same_page(one, other) == same


@pytest.mark.browser
def test_a_real_chromium_opens_and_closes_tabs(tmp_path, chromium_port):
    urls = pages(tmp_path)
    tabs = Tabs(f"http://127.0.0.1:{chromium_port}")

    async def use():
        await tabs.open(urls)
        opened = {tab["title"]: tab["url"] for tab in await tabs.pages()}
        await tabs.close(urls[:1])
        return opened

    assert asyncio.run(use()) == dict(zip(("one 1", "two"), urls, strict=True))
    for _ in range(100):  # a tab closes some time after it was told to
        if titles(chromium_port) == ["two"]:
            break
        time.sleep(0.1)
    assert titles(chromium_port) == ["two"]


@pytest.mark.browser
def test_a_task_opens_tabs_in_a_real_chromium_behind_a_named_host(
    tmp_path, chromium_port, standin, module_of, monkeypatch
):
    pytest.importorskip("docker")
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers import ContainerSpec, DockerHost
    from dartsim.real.osworld.connect import DesktopOptions
    from dartsim.real.osworld.provider import start_desktop

    name, look_up = "gpu-1.desktops.test", socket.getaddrinfo

    def named(host, *args, **kwargs):
        return look_up("127.0.0.1" if host in (name, name.encode()) else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", named)
    urls = pages(tmp_path)
    step = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": urls}}
    task = Task("tabs", "Look.", "chrome", {"config": [step], "evaluator": {"func": "infeasible"}})
    ready = Readiness(change_seconds=0.0, quiet_seconds=0.0)
    settings = DesktopSettings(screen=(320, 240), ready=ready, booted=ready)

    async def use(server_port):
        with pytest.raises(SetupFailed, match="500"):
            await Tabs(f"http://{name}:{chromium_port}").pages()
        engine = module_of(CONTAINERS).FakeEngine()
        engine.free_ports = iter([server_port, chromium_port])
        spec = ContainerSpec(image="osworld", ports={"server": 5000, "chromium": 9222})
        at = DockerHostConfig(url=f"tcp://{name}:2376", bind="0.0.0.0")
        async with DockerHost(at, connect=engine.connect, check_reachable=engine.check_reachable) as host:
            desktop = await start_desktop(host, spec, DesktopOptions(settings=settings, server=ServerTraits()))
            await desktop.reset(task, seed=0)
            await desktop.close()

    with standin.served(standin.Vm()) as url:
        asyncio.run(use(urlsplit(url).port))
    assert sorted(titles(chromium_port)) == ["one 1", "two"]


def pages(folder):
    """Return the addresses of two pages with the titles "one 1" and "two"."""
    for name in ("one 1", "two"):
        (folder / f"{name}.html").write_text(f"<title>{name}</title>")
    return [(folder / f"{name}.html").as_uri() + "?q=a%26b#c" for name in ("one 1", "two")]


def titles(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as reply:
        return [tab["title"] for tab in json.load(reply) if tab["type"] == "page"]
