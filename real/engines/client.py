"""``EngineClient``: the HTTP routes of one vLLM server that are used here, with their errors as worker faults.

It speaks HTTP and not vLLM's Python classes, which change from release to release while the routes do not.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
import httpx

from dartsim.real.engines.errors import EngineBadReply, EngineHung, EngineLost, EngineRefused
from dartsim.real.engines.metrics import EngineLoad, parse_metrics

PauseMode = Literal["abort", "wait", "keep"]

REQUEST_PREFIX = "generate-tokens-"
"""What the server puts before a request's id; requests are aborted by the whole of it."""

_JSON = {"Content-Type": "application/json"}
_FRESH = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A connection a request: the server closes it after an error, and the next request would find it dead."""

_IDLE_SECONDS = 3.0
"""A turn's connection is kept so long for the next one; uvicorn closes it after 5 s, and what was sent then is lost."""


class EngineClient:
    """A client of one server.

    Turns go through aiohttp, whose pool costs the same for any number of connections, where httpx looks through all of
    them at every request (measured: ``experiments.router``). The control routes, a few requests a version, are httpx's.

    Args:
        url: Such as ``http://127.0.0.1:8000``.
        connect_seconds: To open a connection.
        control_seconds: For a small request of the control routes.
        load_seconds: For a request during which weights are moved.
        api_key: Sent as a bearer token, if the server wants one.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_seconds: float = 10.0,
        control_seconds: float = 30.0,
        load_seconds: float = 600.0,
        api_key: str | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.control_seconds = control_seconds
        self.load_seconds = load_seconds
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        context = ssl.create_default_context()  # one for both: each takes 20 ms to make
        self._headers = headers
        self._context = context
        self._connect_seconds = connect_seconds
        self._turns: aiohttp.ClientSession | None = None
        # Environment proxies do not matter to engines: they are on this machine or in this cluster.
        self._control = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(None, connect=connect_seconds),
            limits=_FRESH,
            headers=headers,
            verify=context,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, recorder: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._turns is not None:
            await self._turns.close()
        await self._control.aclose()

    # ---- turns

    async def generate(self, body: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        """Ask for tokens; ``body`` is that of ``POST /inference/v1/generate``.

        The connection is closed if the call is cancelled, which ends the request in the engine.

        Raises:
            EngineRefused, EngineHung, EngineLost: If there was no whole answer.
            EngineBadReply: For any status but 200.
        """
        path = "/inference/v1/generate"
        where = f"{self.url}{path}"
        content = json.dumps(body).encode()
        async with _faults(where, seconds), self._session().post(where, data=content, headers=_JSON) as answer:
            text = await answer.read()
        if answer.status != httpx.codes.OK:
            said = text[:500].decode("utf-8", "replace")
            raise EngineBadReply(f"{where} answered {answer.status}: {said}", status=answer.status)
        return _read(where, text)

    def _session(self) -> aiohttp.ClientSession:
        """Return what turns are posted with, made at the first: it belongs to the loop that runs then."""
        if self._turns is None:
            self._turns = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS, ssl=self._context),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._turns

    async def abort(self, request_id: str) -> None:
        """End a request in the engine, by the id that was sent with it."""
        body = {"request_ids": [REQUEST_PREFIX + request_id]}
        await self._ask(self._control, "POST", "/abort_requests", seconds=self.control_seconds, json=body, empty=True)

    # ---- health and load

    async def healthy(self) -> bool:
        """Say whether the engine answers that it is well. Never raises."""
        try:
            async with asyncio.timeout(self.control_seconds):
                return (await self._control.get("/health")).status_code == httpx.codes.OK
        except (httpx.HTTPError, TimeoutError):
            return False

    async def load(self) -> EngineLoad:
        """Read ``/metrics``."""
        return parse_metrics(await self._send(self._control, "GET", "/metrics", seconds=self.control_seconds))

    # ---- pauses and caches

    async def pause(self, mode: PauseMode) -> None:
        """Stop generation. ``wait`` returns when requests are done; ``keep`` freezes them, ``abort`` ends them.

        New requests wait until the engine is resumed, or are refused with 503: see ``VllmWorker``.
        """
        seconds = self.load_seconds if mode == "wait" else self.control_seconds
        # Caches are reset on their own, after the load: here they would only be cleared in some of the modes.
        params = {"mode": mode, "clear_cache": "false"}
        await self._ask(self._control, "POST", "/pause", seconds=seconds, params=params)

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._ask(self._control, "POST", "/resume", seconds=self.control_seconds)

    async def paused(self) -> bool:
        """Say whether generation is paused."""
        answer = await self._ask(self._control, "GET", "/is_paused", seconds=self.control_seconds)
        return bool(answer.get("is_paused"))

    async def reset_caches(self, *, running: bool = False) -> bool:
        """Forget keys, values and image embeddings; return whether the prefix cache could be reset.

        It cannot while requests hold blocks of it, unless these are to compute their prompts again. The cache of
        images before the model is kept: pixels do not depend on weights, and resetting it under live requests would
        put its two halves out of step.

        Args:
            running: Requests under way compute their prompts and what they have said again, and go on from there.
        """
        await self._ask(self._control, "POST", "/reset_encoder_cache", seconds=self.control_seconds, empty=True)
        params = {"reset_running_requests": "true" if running else "false"}
        answer = await self._ask(
            self._control, "POST", "/reset_prefix_cache", seconds=self.control_seconds, params=params, empty=True
        )
        return bool(answer.get("success", True))

    # ---- weights

    async def rpc(self, method: str, **kwargs: str) -> Any:
        """Call a method of every worker of the engine."""
        body = {"method": method, "kwargs": kwargs, "timeout": self.load_seconds}
        return await self._ask(self._control, "POST", "/collective_rpc", seconds=self.load_seconds, json=body)

    async def transfer(self, step: str, body: Mapping[str, Any] | None = None) -> None:
        """Take one step of the weight-transfer routes, such as ``start_weight_update``."""
        await self._ask(self._control, "POST", f"/{step}", seconds=self.load_seconds, json=body or {})

    async def label(self, version: int) -> None:
        """Name the present weights; the name comes back with every token."""
        body = {"new_version": str(version)}
        await self._ask(self._control, "POST", "/update_weight_version", seconds=self.control_seconds, json=body)

    async def labelled(self) -> str:
        """Return the name of the present weights."""
        answer = await self._ask(self._control, "GET", "/weight_info", seconds=self.control_seconds)
        return str(answer.get("weight_version"))

    async def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of every parameter that the engine holds, by its own names."""
        body = {"action": "checksum"}
        answer = await self._ask(self._control, "POST", "/weight_checker", seconds=self.load_seconds, json=body)
        found = answer.get("checksums")
        if not isinstance(found, dict):
            raise EngineBadReply(f"{self.url}/weight_checker answered {str(answer)[:200]}, wanted checksums")
        return found

    # ---- HTTP

    async def _ask(
        self, client: httpx.AsyncClient, method: str, path: str, *, seconds: float, empty: bool = False, **more: Any
    ) -> dict[str, Any]:
        text = await self._send(client, method, path, seconds=seconds, **more)
        if empty and not text:
            return {}
        return _read(f"{self.url}{path}", text)

    async def _send(self, client: httpx.AsyncClient, method: str, path: str, *, seconds: float, **more: Any) -> str:
        where = f"{self.url}{path}"
        async with _faults(where, seconds):
            response = await client.request(method, path, **more)
        if response.status_code != httpx.codes.OK:
            raise EngineBadReply(
                f"{where} answered {response.status_code}: {response.text[:500]}", status=response.status_code
            )
        return response.text


@asynccontextmanager
async def _faults(where: str, seconds: float) -> AsyncIterator[None]:
    """Tell what goes wrong on the way as a fault of the engine."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (
        httpx.ConnectError,
        httpx.ConnectTimeout,
        aiohttp.ClientConnectorError,
        aiohttp.ConnectionTimeoutError,
    ) as e:
        raise EngineRefused(f"{where}: nothing listens ({e}); is the engine up?") from e
    except TimeoutError:
        raise EngineHung(f"{where} did not answer within {seconds:g} s") from None
    except aiohttp.ClientResponseError as error:
        raise EngineBadReply(f"{where}: no answer in HTTP, {error.message}") from error
    except (httpx.HTTPError, aiohttp.ClientError, ConnectionError) as error:
        raise EngineLost(f"{where}: the connection broke, {type(error).__name__}: {error}") from error


def _read(where: str, text: str | bytes) -> dict[str, Any]:
    """Return an answer's JSON object."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise EngineBadReply(f"{where} answered {text[:200]!r}, wanted JSON") from error
    if not isinstance(answer, dict):
        raise EngineBadReply(f"{where} answered {text[:200]!r}, wanted a JSON object")
    return answer
