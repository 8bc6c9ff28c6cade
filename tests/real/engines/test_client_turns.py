"""Turns on kept connections: answers in pieces, and connections that break, end, hang or were never there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("aiohttp")

from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.errors import EngineBadReply, EngineHung, EngineLost, EngineRefused

pytestmark = pytest.mark.anyio


class Server:
    """Says what it is told to, an entry a request, and keeps what it was asked."""

    def __init__(self, *said: bytes | None):
        self.said = list(said)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                said = self.said.pop(0)
                if said is None:  # never answers; sees the client go
                    await reader.read()
                    return
                writer.write(said)
                await writer.drain()
                if b"close" in said or not said:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            writer.close()


@asynccontextmanager
async def serving(*said: bytes | None) -> AsyncIterator[tuple[Server, str]]:
    found = Server(*said)
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    async with server:
        yield found, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def whole(body: bytes, status: int = 200, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} x\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x;name=value\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


async def test_a_connection_is_kept_for_the_next_turn():
    async with serving(whole(b'{"n": 1}'), chunked(b'{"n"', b": 2}")) as (server, url):
        async with EngineClient(url + "/base/") as client:
            assert await client.generate({"a": 1}, seconds=30.0) == {"n": 1}
            assert await client.generate({}, seconds=30.0) == {"n": 2}
        assert (server.connections, server.bodies) == (1, [b'{"a":1}', b"{}"])
        assert server.heads[0].startswith("POST /base/inference/v1/generate HTTP/1.1\r\n")
        await server.gone.wait()


async def test_turns_at_once_have_a_connection_each():
    async with serving(*[whole(b"{}")] * 240) as (server, url), EngineClient(url) as client:
        for _ in range(2):
            assert await asyncio.gather(*(client.generate({}, seconds=30.0) for _ in range(120))) == [{}] * 120
        assert server.connections == 120


async def test_a_turn_that_is_cancelled_hangs_up():
    async with serving(None, whole(b"{}")) as (server, url), EngineClient(url) as client:
        asking = asyncio.create_task(client.generate({}, seconds=30.0))
        while not server.bodies:  # noqa: ASYNC110 - another task's list
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.gone.wait()
        assert await client.generate({}, seconds=30.0) == {}


async def test_a_turn_is_never_sent_twice():
    """The server closes a kept connection under the second request: whether it was read, nobody knows."""

    async with serving(whole(b"{}"), b"", whole(b"{}")) as (server, url), EngineClient(url) as client:
        await client.generate({}, seconds=30.0)
        with pytest.raises(EngineLost):
            await client.generate({"second": 1}, seconds=30.0)
        assert server.bodies == [b"{}", b'{"second":1}']


async def test_what_goes_wrong_is_told_as_a_fault_of_the_engine():
    async def ask(url: str, seconds: float = 30.0):
        async with EngineClient(url) as client:
            return await client.generate({}, seconds=seconds)

    async with serving(b"") as (_, url):
        with pytest.raises(EngineLost):
            await ask(url)
    with pytest.raises(EngineRefused, match="nothing listens"):
        await ask(url)
    async with serving(None) as (_, url):
        with pytest.raises(EngineHung, match=r"within 0\.05 s"):
            await ask(url, 0.05)
    for said in (b"220 smtp ready\r\n\r\n", whole(b"[]")):
        async with serving(said) as (_, url):
            with pytest.raises(EngineBadReply):
                await ask(url)
    async with serving(whole(b"busy", 503)) as (_, url):
        with pytest.raises(EngineBadReply, match="503: busy") as caught:
            await ask(url)
        assert caught.value.status == 503
