"""A reply of a desktop that is not as long as it says is a fault of its server; a whole one is not."""

import asyncio
import gzip
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.real.osworld.client import VmClient
from dartsim.real.osworld.errors import EnvBroken, FetchFailed
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.transport import ServerTraits

FILE = b"the whole file"
SIZE = b"Content-Length: %d\r\n" % len(FILE)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
WHOLE = {
    "plain": (SIZE, FILE),
    "until the end": (b"", FILE),
    "chunked": (CHUNKED, b"3\r\nthe\r\nb\r\n whole file\r\n0\r\n\r\n"),
    "kept alive": (SIZE + b"Connection: keep-alive\r\n", FILE),
}
BROKEN = {
    "length too small": (b"Content-Length: 9\r\n", FILE),
    "length of nothing": (b"Content-Length: 0\r\n", FILE),
    "length too large": (b"Content-Length: 99\r\n", FILE),
    "cut in a chunk": (CHUNKED, b"ff\r\nthe whole"),
    "no last chunk": (CHUNKED, b"3\r\nthe\r\n"),
    "packed and cut": (b"Content-Encoding: gzip\r\n" + SIZE, gzip.compress(FILE * 99, mtime=0)[:9]),
}


@asynccontextmanager
async def serving(fields, body, *, pause=0.0):
    async def serve(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            for part in (b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + fields + b"\r\n" + body[:9], body[9:]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def run(get, *reply, **options):
    async def go():
        async with serving(*reply, **options) as url:
            return await get(url)

    return asyncio.run(go())


async def file_of_desktop(url):
    async with VmClient(url, server=ServerTraits(retry_seconds=0.0)) as client:
        return await client.file("/a.xlsx")


def downloading(folder):
    async def download(url):
        return (await Downloads(folder, allowed=["127.0.0.1"]).fetch(f"{url}/a.xlsx")).read_bytes()

    return download


@pytest.mark.parametrize("reply", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_a_whole_reply_is_taken(reply, pause):
    assert run(file_of_desktop, *reply, pause=pause) == FILE


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_a_broken_reply_is_a_fault(reply):
    with pytest.raises(EnvBroken):
        run(file_of_desktop, *reply)


@pytest.mark.parametrize("name", ["length too large", "cut in a chunk", "packed and cut"])
def test_a_download_that_is_cut_is_no_file(tmp_path, monkeypatch, name):
    monkeypatch.setattr("dartsim.real.osworld.fetch.BETWEEN_SECONDS", 0.0)
    with pytest.raises(FetchFailed):
        run(downloading(tmp_path), *BROKEN[name])
    assert list(tmp_path.iterdir()) == []


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:1"


@pytest.mark.parametrize("body", [b"", b"<!DOCTYPE html><p>Sign in", b" \n<HTML>", POINTER])
def test_what_a_server_gives_in_place_of_a_file_is_a_failed_download(tmp_path, body):
    with pytest.raises(FetchFailed, match=r"in place of \.xlsx"):
        run(downloading(tmp_path), b"Content-Length: %d\r\n" % len(body), body)
    assert list(tmp_path.iterdir()) == []


def test_a_page_in_place_of_a_file_of_the_desktop_is_a_fault():
    page = b"Content-Type: text/html; charset=utf-8\r\n"
    with pytest.raises(EnvBroken, match="found a page"):
        run(file_of_desktop, page, b"<p>Bad gateway")
    assert run(file_of_desktop, page + b"Content-Disposition: attachment; filename=a.html\r\n", b"<p>") == b"<p>"
