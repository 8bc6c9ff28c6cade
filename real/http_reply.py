"""``ReplyCheck``: detects a body longer than its reply says, which HTTP clients silently ignore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

MAX_REPLY_BYTES = 128 * 2**20
"""Largest reply of a desktop: a file, a screenshot, a tree."""
MAX_HEAD_BYTES = 2**20


class ReplyCheck:
    """Watches the bytes of the one reply of a connection.

    Attributes:
        packed: Whether its body is compressed.
        overlong: Whether more came than it says, or than a head may have.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.packed = self.overlong = False
        self._head = b""
        self._in_head = True
        self._wanted: int | None = None
        self._chunked = False
        self._size = 0
        self._end = b""

    @property
    def whole(self) -> bool:
        """Whether all of the reply has come, if the server has hung up now."""
        if self._in_head:
            return False
        return self._end == b"0\r\n\r\n" if self._chunked else self._size >= (self._wanted or 0)

    def feed(self, data: bytes) -> None:
        while self._in_head and not self.overlong:
            self._head, end, data = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                self.overlong = len(self._head) > MAX_HEAD_BYTES
                return
            self._in_head = self._head[9:10] == b"1"  # an interim reply: the real one follows
            if not self._in_head:
                self._read(self._head.decode("latin-1"))
            self._head = b""
        self._size += len(data)
        self._end = (self._end + data)[-5:]
        self.overlong |= self._wanted is not None and self._size > self._wanted

    def _read(self, head: str) -> None:
        _, *lines = head.lower().split("\r\n")
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = "chunked" in fields.get("transfer-encoding", "")
        if not self._chunked and fields.get("content-length", "").isdecimal():
            self._wanted = int(fields["content-length"])
        self.packed = fields.get("content-encoding", "identity") != "identity"


def watch(request: httpx.Request) -> ReplyCheck:
    """Request an uncompressed reply on its own connection, and return the check of its bytes."""
    check = ReplyCheck()
    request.headers.update({"Accept-Encoding": "identity", "Connection": "close"})
    outer = request.extensions.get("trace")

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            check.restart()
            _tap(info["return_value"], check)
        if outer is not None:
            await outer(event, info)

    request.extensions["trace"] = trace
    return check


def check_length(response: httpx.Response, check: ReplyCheck, size: int) -> None:
    """Check that a body of ``size`` bytes is as long as its reply says, unless it is compressed.

    Raises:
        RemoteProtocolError: If it is not.
    """
    import httpx

    packed = response.headers.get("Content-Encoding", "identity") != "identity"
    if check.overlong or not (packed or response.headers.get("Content-Length", str(size)) == str(size)):
        raise httpx.RemoteProtocolError("the body has another length than its Content-Length")


def _tap(stream: Any, check: ReplyCheck) -> None:
    read = stream.read

    async def tapped(max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = await read(max_bytes, timeout)
        check.feed(data)
        return data

    stream.read = tapped
