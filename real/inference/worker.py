"""``VllmWorker``: one vLLM engine behind the port ``PolicyWorker``.

    generate:  request --Asker--> tokens, screenshots --HTTP--> tokens, log-probabilities, versions --Asker--> reply
    load:      weights --EngineLife, Holding--> engine

States: up; loading; unloaded (a load failed, or what a dead engine served is gone: nothing is served until a load
succeeds); down (the process ended: it is started again, gets its weights back, and is up).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import numpy as np

from dartsim.core.errors import WorkerFault, cause_of
from dartsim.core.ports import SyncMode
from dartsim.core.types import Attempt, Observation, Reply, Request, Task, Version, Weights
from dartsim.real.inference.asking import Answered, Asked, Asker
from dartsim.real.inference.client import EngineClient
from dartsim.real.inference.errors import EngineHung, EngineRestarted, EngineUnloaded
from dartsim.real.inference.holding import Holding
from dartsim.real.inference.launcher import Engine
from dartsim.real.inference.ledger import Ledger
from dartsim.real.inference.life import EngineLife
from dartsim.real.inference.metrics import EngineLoad
from dartsim.real.inference.sending import Sender
from dartsim.real.inference.settings import State, WorkerSettings
from dartsim.real.inference.weights import Spool, Transfer


class VllmWorker:
    """One engine; implements ``dartsim.core.ports.PolicyWorker``. Use it as ``async with``.

    Every reply carries the log-probabilities of the distribution it was sampled from (``processed_logprobs``: after
    temperature and grammar) and the versions of its tokens, as the engine itself counted them. ``Reply.entropies``
    is what ``Asker`` makes of the likeliest tokens, or None.

    Prefixes are cached by version: a request that is sent after a change of weights never hits an entry made before
    it, even where kept requests still hold its memory (the engine's cache cannot be reset then). One that was sent
    before and first served after the change may: so ``Reply.oldest_version`` is at most the version it was sent to.

    Attributes:
        index: Its number in the pool.
        engine: The server.
        counts: ``requests``, ``prompt_tokens``, ``cached_tokens`` (found in the prefix cache), ``response_tokens``,
            ``restarts`` (planned), ``deaths``, and ``fault/<cause>``.

    Args:
        index: Its number in the pool.
        engine: The server, not started.
        asker: Requests to tokens; shared by the workers of a pool.
        weights: What the engine starts with: ``source`` is its model folder. None as source, for an engine that is
            attached to, leaves the first weights unconfirmed.
        transfer: How weights get in.
        ledger: What engines must hold; shared by the workers of a pool.
        spool: Where weights that are no folder are written; shared.
        settings: Patience.
    """

    def __init__(
        self,
        index: int,
        engine: Engine,
        asker: Asker,
        *,
        weights: Weights,
        transfer: Transfer | None = None,
        ledger: Ledger | None = None,
        spool: Spool | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        self.index = index
        self.engine = engine
        self.counts: Counter[str] = Counter()
        self._asker = asker
        self._settings = settings or WorkerSettings()
        self._holding = Holding(engine, transfer=transfer, ledger=ledger, spool=spool, settings=self._settings)
        self._sender = Sender(engine.name, self._settings, self._target)
        self._life = EngineLife(
            self._holding,
            weights,
            settings=self._settings,
            counts=self.counts,
            kill=self._sender.kill,
            warm_up=self._warm_up,
        )

    @property
    def state(self) -> State:
        """What it is good for."""
        return self._life.state

    @property
    def version(self) -> Version:
        """Of the weights it serves, or served last."""
        return self._life.version

    # ---- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, recorder: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the engine, name and confirm its weights, and watch it from then on.

        Raises:
            EngineStartFailed: If it did not become healthy.
            WeightsUnconfirmed: If it holds other weights than those it was started with.
        """
        try:
            await self._life.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all requests and the engine, if it is ours. May be called twice."""
        try:
            await self._life.leave()
        finally:
            self._sender.kill(EngineRestarted(f"{self.engine.name} was closed"))
            await self._sender.settle()
            await self._holding.stop()

    async def wait_until_up(self) -> None:
        """Wait until the engine serves."""
        await self._life.wait_until_up()

    async def read_load(self) -> EngineLoad:
        """Read the engine's own metrics.

        Raises:
            WorkerFault: If it did not answer.
        """
        return await self._holding.connected().load()

    # ---- requests

    async def generate(self, request: Request) -> Reply:
        """Answer one request. Cancelling the call, or its time-out, ends the request in the engine.

        Raises:
            WorkerFault: If the engine failed it, with a class that has a ``cause``.
        """
        try:
            async with self._in_time(f"turn {request.turn} of attempt {request.attempt.id}"):
                asked, read, sent_at = await self._generate(request)
        except WorkerFault as fault:
            self.counts[f"fault/{cause_of(fault)}"] += 1
            if self.state is State.DOWN:
                fault.back = self._life.wait_until_back
            raise
        self.counts["requests"] += 1
        self.counts["prompt_tokens"] += asked.prompt_tokens
        self.counts["cached_tokens"] += read.cached_tokens or 0
        self.counts["response_tokens"] += len(read.tokens)
        return Reply(
            read.action,
            read.newest,
            read.oldest if self._settings.recompute else min(read.oldest, sent_at),
            self.index,
            asked.prompt_tokens,
            len(read.tokens),
            read.tokens,
            read.logprobs,
            read.entropies,
            read.cached_tokens,
        )

    async def _generate(self, request: Request) -> tuple[Asked, Answered, Version]:
        """Ask the engine once it is up; return what was asked, what it answered, and the version it was sent to."""
        if self.state is not State.UP:
            await self._until_up()
        asked = await self._asker.ask(request)
        if self.state is not State.UP:
            await self._until_up()
        sent_at = self.version
        return asked, self._asker.read(await self._sender.send(asked.body), asked), sent_at

    @asynccontextmanager
    async def _in_time(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                yield
        except TimeoutError:
            raise EngineHung(
                f"{self.engine.name} had not answered {what} after {self._settings.request_seconds:g} s; the request "
                "was aborted"
            ) from None

    async def _until_up(self) -> None:
        if self.state is State.LOADING and self._holding.client is not None:
            return  # the engine itself lets it wait, or refuses it for a while
        restarting = self.state is State.LOADING
        try:
            async with asyncio.timeout(self._settings.patience_seconds):
                await self._life.wait_until_up()
        except TimeoutError:
            text = f"{self.engine.name} is {self.state}, and was not up within {self._settings.patience_seconds:g} s"
            raise (EngineRestarted(text) if restarting else EngineUnloaded(text)) from None

    async def _warm_up(self) -> None:
        """Have the engine answer a blank screen, before anybody else asks it; nothing is counted."""
        screen = np.zeros((112, 112, 3), dtype=np.uint8)
        attempt = Attempt(-1, Task("warm-up", "Wait."), 0, 0, 0, 1, self.version)
        asked = await self._asker.ask(Request(attempt, 0, Observation(screen, "Wait."), []))
        async with self._in_time("its first request"):
            self._asker.read(await self._sender.send(asked.body), asked)

    def _target(self) -> tuple[EngineClient, str | None]:
        """Return whom to ask, and the salt of the prefix cache."""
        # While weights change, nobody knows which ones will make the cache's entry: nobody else may use it then.
        return self._holding.connected(), str(self.version) if self.state is State.UP else None

    # ---- weights

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Put new weights into the engine, see that they arrived, and serve them.

        ``KEEP`` freezes live requests over the change; ``DRAIN`` waits for them; ``RESTART`` ends them with
        ``WorkerRestarted`` and starts the process again with the new weights (an engine that is attached to is only
        paused, its requests aborted). In all modes a process that does not run is started with them.

        Raises:
            WorkerFault: If they could not be loaded; nothing is served then until a load succeeds.
        """
        await self._life.load(weights, mode)
