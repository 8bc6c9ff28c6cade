"""``DesktopRelay``: the ports of one desktop, as sockets that one sandbox can use while a getter runs.

It leads to the ports of that desktop and nowhere else, and ends when more passes than a getter may move.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from dartsim.real.scoring.sandbox import ScoreFault

CHUNK_BYTES = 2**16
MAX_BYTES = 512 * 2**20
"""Most bytes that pass in one call, both ways together."""
MAX_CONNECTIONS = 64


@asynccontextmanager
async def desktop_relay(
    ports: Mapping[str, str | None], link: Path, inside: str, *, max_bytes: int = MAX_BYTES
) -> AsyncIterator[dict[str, str]]:
    """Listen on a socket for each port for the length of a block, and provide the sockets' paths in the sandbox.

    Args:
        ports: URL of each port of the desktop by name: ``server``, ``chromium``, ``vlc``; None leaves one out.
        link: Folder that the sandbox sees.
        inside: Its path there.
        max_bytes: Most bytes that may pass.

    Raises:
        ScoreFault: At the end of the block, if more passed: what a getter read may be cut off; or if the desktop's
            server took no connection, which some getters take for an empty answer.
    """
    relay = _DesktopRelay(max_bytes)
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
            sockets[name] = f"{inside}/{name}"
        yield sockets
    if relay.exceeded:
        raise ScoreFault(f"a getter moved more than {max_bytes} bytes", cause="getter_failed")
    if "server" in relay.refused:  # an agent may have closed Chrome, never the desktop's server
        raise ScoreFault("the desktop's server took no connection of a getter", cause="vm_unreachable")


class _DesktopRelay:
    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self.exceeded = False
        self.refused: set[str] = set()
        """Ports that took no connection, by name."""
        self._connections: set[asyncio.Task[None]] = set()

    def forward(
        self, name: str, host: str, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        """Return what serves one connection: it is copied to a port and back."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            if len(self._connections) >= MAX_CONNECTIONS:
                writer.close()
                return
            self._connections.add(task)
            far: asyncio.StreamWriter | None = None
            try:
                try:
                    far_reader, far = await asyncio.open_connection(host, port, limit=CHUNK_BYTES)
                except OSError:
                    self.refused.add(name)
                    raise
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._copy(reader, far))
                    group.create_task(self._copy(far_reader, writer))
            except* OSError:
                pass  # a side hung up, or too much has passed
            finally:
                self._connections.discard(task)
                for end in (writer, far):
                    if end is not None:
                        end.close()

        return serve

    async def close(self) -> None:
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            self._left -= len(chunk)
            if self._left < 0:
                self.exceeded = True
                raise ConnectionAbortedError("more has passed than a getter may move")
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
