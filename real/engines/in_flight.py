"""``InFlight``: running requests of one engine; each is aborted in the engine once no one waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import WorkerFault
from dartsim.real.engines.client import UNAVAILABLE, EngineClient
from dartsim.real.engines.errors import EngineAborted, EngineBadReply, EngineLost, EnginePaused, EngineRefused
from dartsim.real.engines.options import WorkerSettings

if TYPE_CHECKING:
    from dartsim.real.vlm.images import Picture

_SENDERS = itertools.count()


class InFlight:
    """Sends requests."""

    def __init__(
        self,
        name: str,
        settings: WorkerSettings,
        target: Callable[[], tuple[EngineClient, str | None]],
        *,
        refused: Callable[[], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._target = target
        self._refused = refused
        self._prefix = f"dartsim-{next(_SENDERS)}"
        self._number = itertools.count()
        self._live: set[asyncio.Task[dict[str, Any]]] = set()
        self._killed: dict[asyncio.Task[dict[str, Any]], WorkerFault] = {}
        self._aborts: set[asyncio.Task[None]] = set()

    async def send(self, body: Mapping[str, Any], pictures: Sequence[Picture] = ()) -> dict[str, Any]:
        """Return the answer to a body and its pictures.

        It is sent again while the engine is paused, and once more if the connection broke.

        Raises:
            WorkerFault: If there was none.
        """
        settings = self._settings
        waited, lost = 0.0, 0
        while True:
            try:
                return await self._send_once(body, pictures)
            except EngineBadReply as fault:
                if fault.status != UNAVAILABLE:
                    raise
                if waited >= settings.pause_seconds:
                    raise EnginePaused(f"{self._name} has refused a request for {waited:g} s: {fault}") from None
            except EngineLost:
                # Perhaps an idle connection that the server was just closing. Asking twice samples the same reply.
                lost += 1
                if lost > 1:
                    raise
                continue
            except EngineRefused:
                self._refused()
                # Gives the supervisor time to notice, and keeps a pool of one engine from using up its tries.
                await asyncio.sleep(settings.retry_seconds)
                raise
            waited += settings.retry_seconds
            await asyncio.sleep(settings.retry_seconds)

    async def _send_once(self, body: Mapping[str, Any], pictures: Sequence[Picture]) -> dict[str, Any]:
        """Send a request once. If this call ends early, the request ends in the engine too."""
        client, salt = self._target()
        request_id = f"{self._prefix}-{next(self._number)}"
        full_body = {**body, "request_id": request_id, "cache_salt": salt or request_id}
        sending = asyncio.create_task(client.generate(full_body, pictures, seconds=2 * self._settings.request_seconds))
        self._live.add(sending)
        caller = asyncio.current_task()
        assert caller is not None
        cancels = caller.cancelling()
        try:
            answer = await sending
        except asyncio.CancelledError:
            killed = self._killed.get(sending)
            # Both may come in one tick; then the caller's cancellation counts.
            if killed is not None and caller.cancelling() == cancels:
                raise killed from None
            abort = asyncio.create_task(_abort(client, request_id))
            self._aborts.add(abort)
            abort.add_done_callback(self._aborts.discard)
            raise
        finally:
            self._live.discard(sending)
            self._killed.pop(sending, None)
        if answer.get("choices") and answer["choices"][0].get("finish_reason") == "abort":
            raise EngineAborted(f"{self._name}: another client aborted request {request_id}")
        return answer

    def kill(self, fault: WorkerFault) -> None:
        for sending in self._live:
            if sending.cancel():
                self._killed[sending] = fault

    async def settle(self) -> None:
        """Wait until all abandoned requests have been aborted in the engine."""
        if self._aborts:
            await asyncio.wait(self._aborts)


async def _abort(client: EngineClient, request_id: str) -> None:
    """Abort in addition to closing the connection: a proxy in between may keep its own open."""
    with contextlib.suppress(WorkerFault):
        await client.abort(request_id)
