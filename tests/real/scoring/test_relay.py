"""A getter in a sandbox reaches the ports of its desktop, those alone, and moves no more than it may."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from dartsim.real.scoring import ScoreFault
from dartsim.real.scoring.relay import desktop_relay


@pytest.fixture
def page() -> Iterator[str]:
    """A server whose page has 100,000 bytes."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"p" * 100_000)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetched(sandbox, page, **options):
    async def call(inside):
        async with desktop_relay({"chromium": page, "vlc": None}, inside.link, inside.inside, **options) as sockets:
            assert list(sockets) == ["chromium"]
            return await inside.getter("page", {"dest": "sub.html"}, sockets, "")

    return sandbox.run(call)


def test_a_getter_reaches_its_desktop_and_its_file_goes_to_the_metric(sandbox, page):
    value = fetched(sandbox, page)
    assert value.files == {"sub.html": b"p" * 100_000}
    assert sandbox.metric("same_text", value, sandbox.file("gold.html", "p" * 100_000)) == 1.0


def test_no_more_passes_than_a_getter_may_move(sandbox, page):
    with pytest.raises(ScoreFault) as caught:
        fetched(sandbox, page, max_bytes=50_000)
    assert caught.value.cause == "getter_failed"


def test_a_desktop_that_is_gone_is_a_fault_even_if_the_getter_takes_it_for_an_empty_answer(sandbox):
    async def call(inside):
        async with desktop_relay({"server": "http://127.0.0.1:1"}, inside.link, inside.inside) as sockets:
            return await inside.getter("guess", {}, sockets, "")

    with pytest.raises(ScoreFault) as caught:
        sandbox.run(call)
    assert caught.value.cause == "vm_unreachable"


def test_a_browser_that_is_gone_is_a_fault_if_the_getter_says_so(sandbox):
    with pytest.raises(ScoreFault) as caught:
        fetched(sandbox, "http://127.0.0.1:1")
    assert caught.value.cause == "getter_failed"
