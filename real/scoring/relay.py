"""``DesktopRelay``: the ports of one desktop, as sockets that one sandbox can use while a getter runs.

It leads only to the ports of that desktop, and ends if a getter transfers too much.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import h11

from dartsim.real.scoring.sandbox import INSIDE, ScoreFault

CHUNK_BYTES = 2**16
MAX_BYTES = 512 * 2**20
"""Most bytes that pass in one call, both ways together."""
MAX_CONNECTIONS = 64


@asynccontextmanager
async def desktop_relay(
    ports: Mapping[str, str | None], link: Path, *, max_bytes: int = MAX_BYTES
) -> AsyncIterator[dict[str, str]]:
    """Listen on a socket for each port for the length of a block, and provide the sockets' paths in the sandbox.

    Args:
        ports: URL of each port of the desktop by name: ``server``, ``chromium``, ``vlc``; None leaves one out.
        link: Folder that the sandbox sees as ``INSIDE``.
        max_bytes: Most bytes that may pass.

    Raises:
        ScoreFault: At the end of the block, whatever the getter made of it: if the desktop's server took no connection,
            or a reply of it was cut off, packed, or of another length than it says; or if more passed than may.
    """
    relay = _DesktopRelay(max_bytes)
    failed: ScoreFault | None = None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(relay.close)
        sockets: dict[str, str] = {}
        for name, url in ports.items():
            if url is None:
                continue
            parts = urlsplit(url)
            path = link / name
            host, port = parts.hostname or "", parts.port or 80
            server = await asyncio.start_unix_server(relay.forward(name, host, port), path, limit=CHUNK_BYTES)
            stack.callback(path.unlink, missing_ok=True)
            stack.callback(server.close)
            os.chmod(path, 0o666)  # noqa: PTH101 - the folder above it is ours alone
            sockets[name] = f"{INSIDE}/{name}"
        try:
            yield sockets
        except ScoreFault as fault:
            failed = fault
    # An agent may have closed Chrome, but faults of the desktop's own server are never its doing.
    if relay.server_fault:
        raise ScoreFault(f"the desktop's server {relay.server_fault}", cause="vm_unreachable") from failed
    if relay.exceeded:
        raise ScoreFault(f"a getter moved more than {max_bytes} bytes", cause="getter_failed") from failed
    if failed is not None:
        raise failed


class _DesktopRelay:
    """Copies between connections of a sandbox and the ports of its desktop.

    Attributes:
        exceeded: Whether more passed than may.
        server_fault: What was wrong with the desktop's server.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self.exceeded = False
        self.server_fault = ""
        self._connections: set[asyncio.Task[None]] = set()

    def forward(self, name: str, host: str, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """Return what serves one connection: it is copied to a port and back."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._connections) >= MAX_CONNECTIONS:
                writer.close()
                return
            # A task of ours: asyncio reports one of its own as an error when it is cancelled (Python 3.11).
            task = asyncio.create_task(self._serve(name, host, port, reader, writer), name="relay to a desktop")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return connected

    async def close(self) -> None:
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(
        self, name: str, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far: asyncio.StreamWriter | None = None
        server = name == "server"
        try:
            far_reader, far = await asyncio.open_connection(host, port, limit=CHUNK_BYTES)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, far))
                group.create_task(
                    self._answer(far_reader, writer, reader) if server else self._copy(far_reader, writer)
                )
        except* OSError:
            if far is None and server:
                self.server_fault = "took no connection of a getter"
        finally:
            for end in (writer, far):
                if end is not None:
                    end.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, check: _ReplyCheck | None = None
    ) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            self._left -= len(chunk)
            if self._left < 0:
                self.exceeded = True
                raise ConnectionAbortedError("more has passed than a getter may move")
            if check is not None:
                check.feed(chunk)
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asking: asyncio.StreamReader
    ) -> None:
        """Copy a reply of the desktop's server, and note what is wrong with it."""
        check = _ReplyCheck()
        try:
            await self._copy(reader, writer, check)
        finally:
            ended = reader.at_eof() or reader.exception() is not None
            if ended and not asking.at_eof() and not self.exceeded:
                check.feed(b"")
            self.server_fault = self.server_fault or check.problem


class _ReplyCheck:
    """Reads the one reply of a connection while it passes; ``problem`` says what is wrong with it."""

    def __init__(self) -> None:
        self.problem = ""
        self._http = h11.Connection(h11.CLIENT)
        for event in (h11.Request(method="GET", target="/", headers=[("Host", "desktop")]), h11.EndOfMessage()):
            self._http.send(event)

    def feed(self, data: bytes) -> None:
        """Read the next bytes; none at the end of the connection."""
        if self.problem:
            return
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response) and _is_packed(event):
                    self.problem = "sent a packed reply, which was not asked for"
                elif isinstance(event, h11.ConnectionClosed):
                    break
        except h11.ProtocolError:
            self.problem = "sent a reply that is not as long as it says"
        if self._http.their_state in (h11.DONE, h11.MUST_CLOSE) and self._http.trailing_data[0]:
            self.problem = "sent a reply that is longer than it says"


def _is_packed(response: h11.Response) -> bool:
    return dict(response.headers).get(b"content-encoding", b"identity") != b"identity"
