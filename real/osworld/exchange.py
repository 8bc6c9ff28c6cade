"""``OneExchange``: one request and its whole reply on a connection of their own, for servers that are not trusted.

On a reused connection, "closed before the request" and "lost after the request had arrived" look the same, and a body
longer than its reply says is taken for the start of the next one.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import Any

import h11
import httpx

from dartsim.real.osworld.errors import TOO_LARGE, VmBadReply
from dartsim.real.osworld.replies import MAX_REPLY_BYTES

MAX_HEAD_BYTES = 2**18
CLOSE_SECONDS = 0.25
"""How long a server that says so may take to hang up after its reply."""


class Stage:
    """Whether the bytes of a request may have reached the server; without a transport that tells, they may have."""

    may_be_sent = True


class OneExchange(httpx.AsyncBaseTransport):
    """A transport of httpx that refuses replies which are too long, compressed, or not as long as they say.

    It sets ``request.extensions["stage"]``, a ``Stage``, if that is there. No proxy is used. Of the time limits of
    httpx, that of reading is one of the whole exchange.
    """

    def __init__(self, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its reply, read to the end.

        Raises:
            ConnectError, ConnectTimeout: If there is no connection; nothing was sent.
            ReadTimeout: If the reply was not whole in time.
            RemoteProtocolError: If the connection broke, or the reply is not as long as it says.
            VmBadReply: If it is too long, or compressed, which was not requested and may expand to any size.
        """
        stage = request.extensions.get("stage", Stage())
        stage.may_be_sent = False
        body = await request.aread()
        loop = asyncio.get_running_loop()
        reply = _Reply(self._max_bytes, request.url.path)
        limits = request.extensions.get("timeout", {})
        secure = _trusted() if request.url.scheme == "https" else None
        port = request.url.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(limits.get("connect")):
                await loop.create_connection(lambda: reply, request.url.host, port, ssl=secure)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("no connection in time", request=request) from error
        except OSError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        try:
            stage.may_be_sent = True
            async with asyncio.timeout(limits.get("read")):
                return await reply.to(request, body)
        except TimeoutError as error:
            raise httpx.ReadTimeout("the reply was not whole in time", request=request) from error
        except (h11.ProtocolError, OSError) as error:
            raise httpx.RemoteProtocolError(str(error) or type(error).__name__, request=request) from error
        finally:
            reply.abort()


class _Reply(asyncio.Protocol):
    """The client's side of one connection."""

    _transport: asyncio.Transport

    def __init__(self, max_bytes: int, what: str) -> None:
        self._max_bytes = max_bytes
        self._what = what
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._head: h11.Response | None = None
        self._parts: list[bytes] = []
        self._size = 0
        loop = asyncio.get_running_loop()
        self._whole: asyncio.Future[None] = loop.create_future()
        self._hung_up: asyncio.Future[None] = loop.create_future()

    async def to(self, request: httpx.Request, body: bytes) -> httpx.Response:
        """Send a request, and return its reply."""
        fields = [field for field in request.headers.raw if field[0].lower() not in (b"accept-encoding", b"connection")]
        fields += [(b"Accept-Encoding", b"identity"), (b"Connection", b"close")]
        for event in (
            h11.Request(method=request.method, target=request.url.raw_path, headers=fields),
            *([h11.Data(data=body)] if body else []),
            h11.EndOfMessage(),
        ):
            self._transport.write(self._http.send(event) or b"")
        await self._whole
        if self._http.their_state is h11.MUST_CLOSE:  # it hangs up now, unless it sends more than it says
            await asyncio.wait([self._hung_up], timeout=CLOSE_SECONDS)
        if self._http.trailing_data[0]:
            raise h11.RemoteProtocolError("the body is longer than its Content-Length")
        assert self._head is not None
        return httpx.Response(
            self._head.status_code,
            headers=self._head.headers.raw_items(),
            content=b"".join(self._parts),
            request=request,
        )

    def abort(self) -> None:
        self._whole.cancel()
        self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            if self._whole.done():
                self._transport.abort()  # the rest is read by nobody, however much it is
            else:
                self._read()
        except (h11.ProtocolError, VmBadReply) as error:
            self._fail(error)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("closed before the reply was whole"))
        if not self._hung_up.done():
            self._hung_up.set_result(None)

    def _read(self) -> None:
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                self._head = event
                if dict(event.headers).get(b"content-encoding", b"identity") != b"identity":
                    raise VmBadReply(f"{self._what} answered with packed bytes, which were not asked for")
            elif isinstance(event, h11.Data):
                self._size += len(event.data)
                if self._size > self._max_bytes:
                    raise VmBadReply(f"{self._what} answered with more than is taken from a desktop", status=TOO_LARGE)
                self._parts.append(bytes(event.data))
            elif not isinstance(event, h11.InformationalResponse):
                self._whole.set_result(None)
                return

    def _fail(self, error: Exception) -> None:
        if not self._whole.done():
            self._whole.set_exception(error)
            self._whole.exception()  # nobody waits for it if the caller was canceled while it connected


@cache
def _trusted() -> ssl.SSLContext:
    """Return the context of all connections by TLS: it takes 20 ms to make."""
    return ssl.create_default_context()
