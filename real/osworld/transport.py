"""HTTP to the server of one desktop: one request at a time, a time-out on each, and no action sent twice.

Errors are named by what may have happened to the request. Refused: nothing listens, so nothing was sent. Unreachable:
no connection in time, so nothing was sent. Hung: sent, but no complete answer in time. Lost: sent, but the connection
broke. Only requests without side effects (reads) are retried, and never after one that hangs: the server may still be
working on it, and two concurrent screenshots corrupt each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from dartsim.real.osworld.errors import (
    ActionUncertain,
    HostUnreachable,
    VmBadReply,
    VmHung,
    VmLost,
    VmMissing,
    VmRefused,
)
from dartsim.real.osworld.exchange import OneExchange, Stage

T = TypeVar("T")

POLL_SECONDS = 0.25
"""Interval between checks whether a server that refuses connections is up again, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Longest time a call may take, by its kind, seconds.

    Attributes:
        connect: Reaching the server; part of each of the others.
        screenshot: One screenshot (OSWorld's client: 10).
        execute: A command; more than the 120 s after which OSWorld's server gives up by itself and says so.
        accessibility: The accessibility tree (LibreOffice Calc's has taken 50 on a slow desktop).
        file: A file down or up.
        other: Everything else.
    """

    connect: float = 5.0
    screenshot: float = 10.0
    execute: float = 130.0
    accessibility: float = 60.0
    file: float = 120.0
    other: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTraits:
    """Properties of the server inside a desktop.

    Attributes:
        screenshot_budget: Screenshots after which it has to be restarted, None for any number. OSWorld's leaks an X
            client with each and dies after 200 to 250, depending on the X clients of the desktop's programs.
        restart_seconds: How long a read waits for a server that refuses. 0: a missing server is an immediate fault.
        tries: Total tries of a read whose answer is lost or invalid.
        retry_seconds: Wait between two tries.
        in_container: Whether it runs right in a container, not in a virtual machine there; then the container's limits
            are the desktop's.
        token: Sent with every request; "" sends none.
    """

    screenshot_budget: int | None = 200
    restart_seconds: float = 0.0
    tries: int = 3
    retry_seconds: float = 0.2
    in_container: bool = False
    token: str = field(default="", repr=False)


OSWORLD_SERVER = ServerTraits(restart_seconds=8.0)
"""OSWorld's own: its service is started again about 5 s after it died."""
OWN_SERVER = ServerTraits(screenshot_budget=None, in_container=True)
"""The one of our own image, which leaks nothing."""


class Transport:
    """Sends requests to one server.

    Invariant: at most one request is running; after one that hangs or was canceled no other is sent until ``forget``
    declares that the server was restarted.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts,
        traits: ServerTraits,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.traits = traits
        self.refusals = 0
        self.requests = 0
        self._connect = timeouts.connect
        self._lock = asyncio.Lock()
        self._abandoned: str | None = None
        self._headers = {"Authorization": f"Bearer {traits.token}"} if traits.token else {}
        self._http = transport or OneExchange()

    async def aclose(self) -> None:
        await self._http.aclose()

    def forget(self) -> None:
        """Declare that the server was restarted, so that no earlier request can still be running in it."""
        self._abandoned = None

    async def read(
        self,
        method: str,
        path: str,
        *,
        seconds: float,
        accept: Callable[[httpx.Response], T],
        patient: bool = True,
        **content: Any,
    ) -> T:
        """Send a read, with retries; ``accept`` parses the answer or raises ``VmBadReply``.

        Without ``patient`` there is only one try.

        Raises:
            VmRefused: If nothing listens.
            VmHung: If no whole answer came in time.
            VmBadReply: If each try gave an answer that makes no sense, or none.
        """
        left = self.traits.tries if patient else 1
        ask = self._patiently if patient else self._once
        async with self._lock:
            while True:
                left -= 1
                try:
                    return accept(await ask(method, path, seconds, content))
                except VmMissing:
                    raise
                except VmBadReply as fault:
                    if left <= 0 or (fault.status is not None and 400 <= fault.status < 500):
                        raise
                await asyncio.sleep(self.traits.retry_seconds)

    async def act(
        self, method: str, path: str, *, seconds: float, accept: Callable[[httpx.Response], T], **content: Any
    ) -> T:
        """Send a request that changes the desktop, once.

        Raises:
            VmRefused: If nothing listens; nothing was done.
            ActionUncertain: If the request was sent and no whole answer came.
            VmBadReply: If the answer says that it failed.
        """
        async with self._lock:
            try:
                return accept(await self._once(method, path, seconds, content))
            except (VmHung, VmLost) as fault:
                if isinstance(fault, VmHung) and not fault.sent:
                    raise
                raise ActionUncertain(f"{fault}; it may have been carried out and is not sent again") from fault

    async def _patiently(self, method: str, path: str, seconds: float, content: Mapping[str, Any]) -> httpx.Response:
        """Send a read, and wait for a server that is restarting."""
        loop = asyncio.get_running_loop()
        until: float | None = None
        while True:
            try:
                response = await self._once(method, path, seconds, content)
            except VmRefused:
                now = loop.time()
                until = now + self.traits.restart_seconds if until is None else until
                if now >= until:
                    raise
                await asyncio.sleep(POLL_SECONDS)
                continue
            if until is not None:
                self.refusals += 1
            return response

    async def _once(self, method: str, path: str, seconds: float, content: Mapping[str, Any]) -> httpx.Response:
        if self._abandoned is not None:
            raise VmHung(f"{self._abandoned} on {self.base_url}; start the desktop or its server afresh", sent=False)
        stage = Stage()
        self.requests += 1
        what = f"{method} {path}"
        connect = min(self._connect, seconds)
        extensions = {"stage": stage, "timeout": {"connect": connect}}
        request = httpx.Request(method, self.base_url + path, headers=self._headers, extensions=extensions, **content)
        try:
            async with asyncio.timeout(seconds):
                response = await self._http.handle_async_request(request)
                response.request = request
                await response.aread()
                return response
        except httpx.ConnectError as exc:
            raise VmRefused(f"nothing listens at {self.base_url} ({what}: {_said(exc)})") from exc
        except (TimeoutError, httpx.TimeoutException) as exc:
            if isinstance(exc, httpx.ConnectTimeout) or not stage.may_be_sent:
                raise HostUnreachable(
                    f"{self.base_url} ({what}): no connection within {connect:g} s; is its host up, and the "
                    "network to it?"
                ) from exc
            self._abandoned = f"an earlier {what} had no answer within {seconds:g} s"
            raise VmHung(f"{self.base_url} ({what}): no answer within {seconds:g} s", sent=True) from exc
        except httpx.RequestError as exc:
            found = f"{self.base_url}, {what}: {_said(exc)}"
            if not stage.may_be_sent:
                raise VmRefused(f"nothing could be sent ({found})") from exc
            raise VmLost(f"the connection broke before the answer was whole ({found})") from exc
        except asyncio.CancelledError:
            if stage.may_be_sent:
                self._abandoned = f"an earlier {what} was cancelled under way"
            raise


def _said(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
