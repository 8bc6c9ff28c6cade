"""``Bounded``: replies of a desktop's server, up to a size. A desktop is an agent's, and may answer with anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from dartsim.real.osworld.errors import VmBadReply

MAX_BYTES = 512 * 2**20
"""Of one reply: a file, a screenshot, a tree."""


class Bounded(httpx.AsyncBaseTransport):
    """A transport that gives replies up as soon as they are too long, or come packed.

    Args:
        inner: Sends requests.
        max_bytes: Longest reply.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, max_bytes: int = MAX_BYTES) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its reply, of which nothing is read yet.

        Raises:
            VmBadReply: If it is packed: nobody asked for that, and it may unpack to anything.
        """
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await response.aclose()
            raise VmBadReply(f"{request.url.path} answered with packed bytes, which were not asked for")
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        response.stream = _Stream(stream, self._max_bytes, request.url.path)
        return response

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._inner.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, max_bytes: int, what: str) -> None:
        self._inner = inner
        self._left = max_bytes
        self._what = what

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise VmBadReply(f"{self._what} answered with more than is taken from a desktop")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
