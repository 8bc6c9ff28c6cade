"""Desktops that do not start, and a broken way to one: attempts wait or are masked, slots serve again."""

import asyncio
import contextlib

import pytest

pytestmark = pytest.mark.docker


class HalfPictures:
    """A way to a desktop's server that passes everything on, but PNGs only by half once ``halves`` is set."""

    def __init__(self, port):
        self.port = port
        self.halves = False
        self.tasks = set()

    @contextlib.asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]
        for task in self.tasks:  # a closed server goes on with the connections that it has
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
            asking = asyncio.create_task(self._ask(reader, up_writer))
            self.tasks.add(asking)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                head = await up_reader.readuntil(b"\r\n\r\n")
                await self._answer(head, up_reader, writer)
            asking.cancel()
            up_writer.close()
        except ConnectionError:
            pass  # the desktop is gone
        finally:
            writer.close()

    async def _ask(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async def _answer(self, head, reader, writer):
        headers = dict(line.split(b": ", 1) for line in head.lower().strip().split(b"\r\n")[1:])
        size = int(headers[b"content-length"])
        body = await reader.readexactly(size)
        if self.halves and headers[b"content-type"] == b"image/png":
            body = body[: size // 2]
            head = head.replace(b": %d\r\n" % size, b": %d\r\n" % len(body))
        writer.write(head + body)
        await writer.drain()


def test_half_a_picture_masks_the_attempt(rig, left, desktop_image):
    ways = {}
    stack = contextlib.AsyncExitStack()

    async def start(cluster, spec, slot):
        container = await cluster.fleet.start(spec, slot=slot)
        way = HalfPictures(container.ports["server"])
        container.ports = {"server": await stack.enter_async_context(way.serving())}
        ways[container.id] = way
        return container

    async def halve(cluster, container):
        ways[container.id].halves = True

    cluster, counts = rig.live(desktop_image, start=start, harm=halve, last=stack.aclose)
    struck = cluster.of(cluster.struck)
    assert (struck.reward, struck.ending, struck.cause) == (None, "broken", "bad_screenshot")
    assert counts["cause/bad_screenshot"] == 1
    assert left(cluster.owner) == 0
