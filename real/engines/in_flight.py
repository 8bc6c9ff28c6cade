"""``InFlight``: requests on their way to one engine, each ended in the engine when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from dartsim.core.errors import WorkerFault
from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.errors import EngineAborted, EngineBadReply, EngineLost, EnginePaused, EngineRefused
from dartsim.real.engines.settings import WorkerSettings

_UNAVAILABLE = 503
_SENDERS = itertools.count()


class InFlight:
    """Sends requests.

    Args:
        name: Of the engine, for people.
        settings: Patience.
        target: Returns whom to ask, and the salt of the prefix cache, or None for one that nobody else has.
    """

    def __init__(
        self, name: str, settings: WorkerSettings, target: Callable[[], tuple[EngineClient, str | None]]
    ) -> None:
        self._name = name
        self._settings = settings
        self._target = target
        self._prefix = f"dartsim-{next(_SENDERS)}"
        self._number = itertools.count()
        self._live: set[asyncio.Task[dict[str, Any]]] = set()
        self._killed: dict[asyncio.Task[dict[str, Any]], WorkerFault] = {}
        self._errands: set[asyncio.Task[None]] = set()

    async def send(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer: asked again while the engine is paused, and once more if the connection broke.

        Raises:
            WorkerFault: If there was none.
        """
        settings = self._settings
        waited, lost = 0.0, 0
        while True:
            try:
                return await self._once(body)
            except EngineBadReply as fault:
                if fault.status != _UNAVAILABLE:
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
                # A moment for who watches the process; and no pool of one engine uses up its tries at once.
                await asyncio.sleep(settings.retry_seconds)
                raise
            waited += settings.retry_seconds
            await asyncio.sleep(settings.retry_seconds)

    async def _once(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request once. Whatever ends this call early ends the request in the engine."""
        client, salt = self._target()
        request_id = f"{self._prefix}-{next(self._number)}"
        whole = {**body, "request_id": request_id, "cache_salt": salt or request_id}
        sending = asyncio.create_task(client.generate(whole, seconds=2 * self._settings.request_seconds))
        self._live.add(sending)
        caller = asyncio.current_task()
        assert caller is not None
        wishes = caller.cancelling()
        try:
            answer = await sending
        except asyncio.CancelledError:
            killed = self._killed.get(sending)
            # Both may come in one tick; whoever cancelled the caller waits for its end.
            if killed is not None and caller.cancelling() == wishes:
                raise killed from None
            self._errand(_abort(client, request_id))
            raise
        finally:
            self._live.discard(sending)
            self._killed.pop(sending, None)
        if answer.get("choices") and answer["choices"][0].get("finish_reason") == "abort":
            raise EngineAborted(f"{self._name}: somebody aborted request {request_id}")
        return answer

    def kill(self, fault: WorkerFault) -> None:
        """Fail all requests that are on their way."""
        for sending in self._live:
            if sending.cancel():
                self._killed[sending] = fault

    async def settle(self) -> None:
        """Wait until the engine was told of all requests that were given up."""
        if self._errands:
            await asyncio.wait(self._errands)

    def _errand(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)


async def _abort(client: EngineClient, request_id: str) -> None:
    """Abort beside closing the connection: a proxy in between may keep its own open."""
    with contextlib.suppress(WorkerFault):
        await client.abort(request_id)
