"""``EngineClient``: the HTTP routes of one vLLM server that we use, with their errors as worker faults.

It speaks HTTP instead of using vLLM's Python classes, which change between releases while the routes do not.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import aiohttp
import httpx
import orjson

from dartsim.real.engines.errors import (
    EngineBadReply,
    EngineFault,
    EngineHung,
    EngineLost,
    EngineRefused,
    EngineUnreachable,
)
from dartsim.real.engines.sent_images import SentImages, image_part

if TYPE_CHECKING:
    from dartsim.real.vlm.images import Picture

PauseMode = Literal["abort", "wait", "keep"]

REQUEST_PREFIX = "generate-tokens-"
"""The server prefixes a request's id with this; an abort needs the full id."""

UNAVAILABLE = 503
"""Status of an engine that is paused."""

_JSON = {"Content-Type": "application/json"}

# TCP alone never notices a crashed host or a cut cable: a request that waits for its answer sends nothing.
SILENT_SECONDS = 10
"""Silence after which TCP probes the other side."""
PROBE_SECONDS = 5
PROBES = 5
"""Unanswered probes that end a connection, so a host may be unreachable for 25 s."""
LOST_SECONDS = SILENT_SECONDS + PROBE_SECONDS * PROBES
"""Longest time until a connection to a lost host ends."""

SocketOption = tuple[int, int, int]

_TCP = {
    "TCP_KEEPIDLE": SILENT_SECONDS,
    "TCP_KEEPINTVL": PROBE_SECONDS,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": 1000 * LOST_SECONDS,  # limit for unacknowledged data
}
SOCKET_OPTIONS: list[SocketOption] = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # Some systems lack some of these options.
    *((socket.IPPROTO_TCP, int(getattr(socket, name)), value) for name, value in _TCP.items() if hasattr(socket, name)),
]
"""The options in the form of ``httpx``."""

CONNECT_SECONDS = 5.0
"""Time limit for opening a connection."""
LOAD_SECONDS = 600.0
"""Time limit of a request during which weights are moved."""
_IDLE_SECONDS = 3.0
"""How long a turn's connection is kept for the next one; uvicorn closes it after 5 s and loses what was sent then."""


def keepalive_socket(
    address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]],
) -> socket.socket:
    """Return a socket with these options for an address of ``getaddrinfo``, as ``aiohttp`` takes it."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    for option in SOCKET_OPTIONS:
        made.setsockopt(*option)
    return made


class EngineClient:
    """A client of one server.

    Turns go through aiohttp: its pool costs the same for any number of connections, while httpx searches all of them at
    every request (with 1,000 at once 0.3 ms of CPU against 1.8 ms). The control routes, a few requests a version, go
    through httpx.

    Args:
        url: Such as ``http://127.0.0.1:8000``.
        control_seconds: Time limit for a small request of the control routes.
    """

    def __init__(self, url: str, *, control_seconds: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self.control_seconds = control_seconds
        self._ssl = ssl.create_default_context()  # shared by both: each takes 20 ms to make
        self._turns: aiohttp.ClientSession | None = None
        self._images = SentImages()
        # Proxies of the environment are ignored: engines are on this machine or in this cluster.
        self._control = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # the rest is limited by `_faults`
            transport=httpx.AsyncHTTPTransport(
                # One connection per request: the server closes it after an error, and a reused one would be dead.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                verify=self._ssl,
                trust_env=False,
                socket_options=SOCKET_OPTIONS,
            ),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._turns is not None:
            await self._turns.close()
        await self._control.aclose()

    async def generate(
        self, body: Mapping[str, Any], pictures: Sequence[Picture] = (), *, seconds: float
    ) -> dict[str, Any]:
        """Ask for tokens; ``body`` is that of ``POST /inference/v1/generate``, without its ``pictures``.

        If the call is canceled, the connection is closed, which ends the request in the engine.

        Raises:
            EngineRefused, EngineHung, EngineLost: If there was no complete answer.
            EngineBadReply: For any status but 200.
        """
        cached = {picture.key for picture in pictures if picture.key in self._images}
        try:
            answer = await self._post_turn(body, pictures, cached, seconds)
        except EngineBadReply as fault:
            if fault.status == UNAVAILABLE or not cached:
                raise
            # Most likely its cache has dropped an image; any other error will occur again.
            self._images.remove(picture.key for picture in pictures)
            answer = await self._post_turn(body, pictures, set(), seconds)
        self._images.add(picture.key for picture in pictures)
        return answer

    async def _post_turn(
        self, body: Mapping[str, Any], pictures: Sequence[Picture], sent: Set[bytes], seconds: float
    ) -> dict[str, Any]:
        url = f"{self.url}/inference/v1/generate"
        content = deque([orjson.dumps(body)])
        if pictures:
            content[0] = content[0][:-1] + b',"content_parts":['
            for number, picture in enumerate(pictures):
                content.append((b"," if number else b"") + image_part(picture, sent=picture.key in sent))
            content.append(b"]}")
        headers = {**_JSON, "Content-Length": str(sum(map(len, content)))}
        async with (
            connection_faults(url, seconds),
            self._session().post(url, data=_consumed(content), headers=headers) as answer,
        ):
            text = await answer.read()
        if answer.status != httpx.codes.OK:
            reason = text[:500].decode("utf-8", "replace")
            raise EngineBadReply(f"{url} answered {answer.status}: {reason}", status=answer.status)
        return json_object(url, text, orjson.loads)  # with the likeliest tokens it is 100 KB and more

    def _session(self) -> aiohttp.ClientSession:
        """Return the session for turns, created at the first turn because it belongs to the running loop."""
        if self._turns is None:
            self._turns = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=_IDLE_SECONDS, ssl=self._ssl, socket_factory=keepalive_socket
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._turns

    async def abort(self, request_id: str) -> None:
        """End a request in the engine, by the id that was sent with it."""
        await self._ask("POST", "/abort_requests", json={"request_ids": [REQUEST_PREFIX + request_id]}, empty=True)

    async def health_problem(self) -> str:
        """Return why the engine is not healthy; empty if it is. Never raises."""
        try:
            async with connection_faults(f"{self.url}/health", self.control_seconds):
                status = (await self._control.get("/health")).status_code
        except EngineFault as fault:
            return str(fault)
        return "" if status == httpx.codes.OK else f"{self.url}/health answered {status}"

    async def pause(self, mode: PauseMode) -> None:
        """Stop generation. ``wait`` returns when requests are done; ``keep`` freezes them, ``abort`` ends them.

        New requests wait until the engine is resumed, or are refused with 503: see ``InFlight``.
        """
        seconds = LOAD_SECONDS if mode == "wait" else self.control_seconds
        # Caches are reset separately, after the load: here only some of the modes would clear them.
        await self._ask("POST", "/pause", seconds=seconds, params={"mode": mode, "clear_cache": "false"})

    async def resume(self) -> None:
        await self._ask("POST", "/resume")

    async def paused(self) -> bool:
        return bool((await self._ask("GET", "/is_paused")).get("is_paused"))

    async def reset_caches(self) -> bool:
        """Forget keys, values and image embeddings; return whether the prefix cache could be reset.

        This is impossible while requests hold blocks of it. The cache of preprocessed images stays: pixels do not
        depend on weights, and a reset under live requests would make its two halves inconsistent.
        """
        await self._ask("POST", "/reset_encoder_cache", empty=True)
        answer = await self._ask("POST", "/reset_prefix_cache", empty=True)
        return bool(answer.get("success", True))

    async def rpc(self, method: str, **kwargs: str | int) -> Any:
        """Call a method of every worker of the engine."""
        body = {"method": method, "kwargs": kwargs, "timeout": LOAD_SECONDS}
        return await self._ask("POST", "/collective_rpc", seconds=LOAD_SECONDS, json=body)

    async def label(self, version: int) -> None:
        """Name the current weights; the name is returned with every token."""
        await self._ask("POST", "/update_weight_version", json={"new_version": str(version)})

    async def weight_label(self) -> str:
        return str((await self._ask("GET", "/weight_info")).get("weight_version"))

    async def reset_weights(self) -> None:
        """Set all weights to zero."""
        await self._ask("POST", "/weight_checker", seconds=LOAD_SECONDS, json={"action": "reset"}, empty=True)

    async def checksums(self) -> dict[str, str]:
        answer = await self._ask("POST", "/weight_checker", seconds=LOAD_SECONDS, json={"action": "checksum"})
        checksums = answer.get("checksums")
        if not isinstance(checksums, dict):
            raise EngineBadReply(f"{self.url}/weight_checker answered {str(answer)[:200]}, wanted checksums")
        return checksums

    async def _ask(
        self, method: str, path: str, *, seconds: float | None = None, empty: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Send a control request and return the JSON object that is answered; ``empty`` allows no answer."""
        url = f"{self.url}{path}"
        async with connection_faults(url, self.control_seconds if seconds is None else seconds):
            response = await self._control.request(method, path, **options)
        if response.status_code != httpx.codes.OK:
            raise EngineBadReply(
                f"{url} answered {response.status_code}: {response.text[:500]}", status=response.status_code
            )
        return {} if empty and not response.text else json_object(url, response.text)


@asynccontextmanager
async def connection_faults(url: str, seconds: float) -> AsyncIterator[None]:
    """Turn errors of the connection into faults of the engine."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (httpx.ConnectTimeout, aiohttp.ConnectionTimeoutError) as error:
        raise EngineUnreachable(f"{url}: no connection; is that machine up, and the network to it?") from error
    except (httpx.ConnectError, aiohttp.ClientConnectorError) as error:
        raise EngineRefused(f"{url}: nothing listens ({error}); is the engine up?") from error
    except TimeoutError:
        raise EngineHung(f"{url} did not answer within {seconds:g} s") from None
    except aiohttp.ClientResponseError as error:
        raise EngineBadReply(f"{url}: the answer is not HTTP, {error.message}") from error
    except (httpx.HTTPError, aiohttp.ClientError, ConnectionError) as error:
        raise EngineLost(f"{url}: the connection broke, {type(error).__name__}: {error}") from error


async def _consumed(parts: deque[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a body and free each one, because waiting for the reply takes much longer than sending."""
    while parts:
        yield parts.popleft()


def json_object(url: str, text: str | bytes, loads: Callable[[str | bytes], Any] = json.loads) -> dict[str, Any]:
    """Return the JSON object in an answer.

    Raises:
        EngineBadReply: If it is something else.
    """
    try:
        answer = loads(text)
    except ValueError as error:
        raise EngineBadReply(f"{url} answered {text[:200]!r}, wanted JSON") from error
    if not isinstance(answer, dict):
        raise EngineBadReply(f"{url} answered {text[:200]!r}, wanted a JSON object")
    return answer
