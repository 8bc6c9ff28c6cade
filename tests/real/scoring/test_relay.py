"""A getter in a sandbox reaches the ports of its desktop, those alone, and moves no more than it may."""

import asyncio
import gzip
import http.server
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dartsim.real.scoring import ScoreFault
from dartsim.real.scoring.relay import desktop_relay


@pytest.fixture
def page() -> Iterator[str]:
    """A server whose page has 100,000 bytes."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"p" * 100_000)

        def log_message(self, format: str, *args):
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
        async with desktop_relay({"chromium": page, "vlc": None}, inside.link, **options) as sockets:
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
        async with desktop_relay({"server": "http://127.0.0.1:1"}, inside.link) as sockets:
            return await inside.getter("guess", {}, sockets, "")

    with pytest.raises(ScoreFault) as caught:
        sandbox.run(call)
    assert caught.value.cause == "vm_unreachable"


def test_a_browser_that_is_gone_is_a_fault_if_the_getter_says_so(sandbox):
    with pytest.raises(ScoreFault) as caught:
        fetched(sandbox, "http://127.0.0.1:1")
    assert caught.value.cause == "getter_failed"


def ask(sandbox, reply, *asked, name="asked", **config):
    """Return what a getter makes of a desktop whose server gives these bytes, or the cause of its fault."""

    async def serve(reader, writer):
        with suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
        writer.close()

    async def call(inside):
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with desktop_relay({"server": url}, inside.link) as sockets:
                return await inside.getter(name, {"ask": asked, "with": ["/a"], **config}, sockets, "")

    try:
        return sandbox.run(call).data
    except ScoreFault as fault:
        return fault.cause


OK = b"HTTP/1.1 200 OK\r\n"
TREE = b'{"AT": "tree"}'
FILE = ("controller", "get_file")


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        OK + b"Content-Length: 3\r\n\r\n" + b"the file",
        OK + b"Content-Length: 99\r\n\r\n" + b"the file",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nthe",
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"the file", mtime=0),
        OK + b"Content-Type: text/html\r\n\r\n<p>Bad gateway",
        b"HTTP/1.1 502 Bad gateway\r\n\r\n",
        b"HTTP/1.1 404 Not found\r\n\r\n<!doctype html><p>no such route",
        b"",
    ],
)
def test_a_broken_reply_of_the_desktops_server_is_a_fault_whatever_a_getter_makes_of_it(sandbox, reply, swallows):
    assert ask(sandbox, reply, *FILE, swallows=swallows) == "vm_unreachable"


def test_a_whole_reply_is_taken(sandbox):
    for head in (b"Content-Length: 8\r\n\r\n", b"\r\n", b"Content-Type: text/html\r\nContent-Disposition: a\r\n\r\n"):
        assert json.loads(ask(sandbox, OK + head + b"the file", *FILE)) == {"$bytes": b"the file".hex()}
    missing = b"HTTP/1.1 404 Not found\r\n\r\n{}"
    assert ask(sandbox, missing, *FILE) == b"null"
    assert ask(sandbox, OK + b"\r\n" + TREE, "controller", "get_accessibility_tree", **{"with": []}) == b'"tree"'


def test_an_answer_that_makes_no_sense_is_a_fault(sandbox):
    for data in (b"{}", b"[]", b"null", b"<p>", b'{"AT": 1}', TREE[:-1]):
        reply = OK + b"\r\n" + data
        assert (
            ask(sandbox, reply, "controller", "get_accessibility_tree", swallows=True, **{"with": []})
            == "vm_unreachable"
        )


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        (("chromium_port",), "vm_unreachable"),
        (("vlc_port",), "vm_unreachable"),
        (("what_only_a_newer_one_has",), "getter_unavailable"),
        (("setup_controller", "_googledrive_setup"), "getter_unavailable"),
        (("controller", "get_the_weather"), "getter_unavailable"),
    ],
)
@pytest.mark.parametrize("swallows", [False, True])
def test_what_is_not_offered_here_is_no_fault_of_the_agent(sandbox, asked, cause, swallows):
    assert ask(sandbox, OK + b"\r\n{}", *asked, swallows=swallows) == cause


def test_windows_are_activated_as_newer_getters_do(sandbox):
    assert ask(sandbox, OK + b"\r\nok", "setup_controller", "_activate_window_setup") == b"null"


def test_what_the_task_file_lacks_is_told_from_what_the_desktop_lacks(sandbox):
    async def call(inside):
        return await inside.getter("lacking", {"infos": [{}]}, {}, "")

    with pytest.raises(ScoreFault) as caught:
        sandbox.run(call)
    assert (caught.value.cause, caught.value.of_task) == ("getter_failed", True)


def test_a_connection_that_is_cut_at_the_end_of_a_call_is_no_error():
    """Python 3.11 reports the cancelled callback of a server as one."""

    async def go(folder):
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        writers = []
        desktop = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{desktop.sockets[0].getsockname()[1]}"
        async with desktop_relay({"server": url}, folder):
            _, writer = await asyncio.open_unix_connection(folder / "server")
            await asyncio.sleep(0.05)
        for each in (writer, *writers):
            each.close()
        desktop.close()
        await asyncio.sleep(0.05)
        return complaints

    with tempfile.TemporaryDirectory() as folder:
        assert asyncio.run(go(Path(folder))) == []
