"""``VllmWorker``: one vLLM engine behind the port ``PolicyWorker``.

    generate:  request --RequestCodec--> tokens, screenshots --HTTP--> tokens, log-probabilities --RequestCodec--> reply
    load:      weights --EngineSupervisor, EngineWeights--> engine

States: up; loading; unloaded (a load failed, or what a dead engine served is gone: nothing is served until a load
succeeds); down (the process ended: it is started again, gets its weights back, and is up).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import numpy as np

from dartsim.core.errors import WorkerFault, cause_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Observation, Reply, Request, Task, Version, Weights
from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.engine_weights import EngineWeights
from dartsim.real.engines.errors import EngineHung, EngineRestarted, EngineUnloaded
from dartsim.real.engines.in_flight import InFlight
from dartsim.real.engines.launcher import Engine
from dartsim.real.engines.ledger import WeightsLedger
from dartsim.real.engines.metrics import EngineLoad
from dartsim.real.engines.request_codec import DecodedReply, EncodedRequest, RequestCodec
from dartsim.real.engines.settings import EngineHealth, WorkerSettings
from dartsim.real.engines.supervisor import EngineSupervisor
from dartsim.real.engines.weights import Spool, Transfer


class VllmWorker:
    """One engine; implements ``dartsim.core.ports.PolicyWorker``. Use it as ``async with``.

    Every reply carries the log-probabilities of the distribution it was sampled from (``processed_logprobs``: after
    temperature and grammar) and the versions of its tokens, as the engine itself counted them. ``Reply.entropies``
    is what ``RequestCodec`` makes of the likeliest tokens, or None.

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
        codec: Requests to tokens; shared by the workers of a pool.
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
        codec: RequestCodec,
        *,
        weights: Weights,
        transfer: Transfer | None = None,
        ledger: WeightsLedger | None = None,
        spool: Spool | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        self.index = index
        self.engine = engine
        self.counts: Counter[str] = Counter()
        self._codec = codec
        self._settings = settings or WorkerSettings()
        self._engine_weights = EngineWeights(
            engine, transfer=transfer, ledger=ledger, spool=spool, settings=self._settings
        )
        self._in_flight = InFlight(engine.name, self._settings, self._target)
        self._supervisor = EngineSupervisor(
            self._engine_weights,
            weights,
            settings=self._settings,
            counts=self.counts,
            kill=self._in_flight.kill,
            warm_up=self._warm_up,
        )

    @property
    def state(self) -> EngineHealth:
        """What it is good for."""
        return self._supervisor.state

    @property
    def version(self) -> Version:
        """Of the weights it serves, or served last."""
        return self._supervisor.version

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
            await self._supervisor.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all requests and the engine, if it is ours. May be called twice."""
        try:
            await self._supervisor.leave()
        finally:
            self._in_flight.kill(EngineRestarted(f"{self.engine.name} was closed"))
            await self._in_flight.settle()
            await self._engine_weights.stop()

    async def wait_until_up(self) -> None:
        """Wait until the engine serves."""
        await self._supervisor.wait_until_up()

    async def read_load(self) -> EngineLoad:
        """Read the engine's own metrics.

        Raises:
            WorkerFault: If it did not answer.
        """
        return await self._engine_weights.connected().load()

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
            if self.state is EngineHealth.DOWN:
                fault.back = self._supervisor.wait_until_back
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

    async def _generate(self, request: Request) -> tuple[EncodedRequest, DecodedReply, Version]:
        """Ask the engine once it is up; return what was asked, what it answered, and the version it was sent to."""
        if self.state is not EngineHealth.UP:
            await self._until_up()
        asked = await self._codec.encode(request)
        if self.state is not EngineHealth.UP:
            await self._until_up()
        sent_at = self.version
        return asked, self._codec.decode(await self._in_flight.send(asked.body), asked), sent_at

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
        if self.state is EngineHealth.LOADING and self._engine_weights.client is not None:
            return  # the engine itself lets it wait, or refuses it for a while
        restarting = self.state is EngineHealth.LOADING
        try:
            async with asyncio.timeout(self._settings.patience_seconds):
                await self._supervisor.wait_until_up()
        except TimeoutError:
            text = f"{self.engine.name} is {self.state}, and was not up within {self._settings.patience_seconds:g} s"
            raise (EngineRestarted(text) if restarting else EngineUnloaded(text)) from None

    async def _warm_up(self) -> None:
        """Have the engine answer a blank screen, before anybody else asks it; nothing is counted."""
        screen = np.zeros((112, 112, 3), dtype=np.uint8)
        attempt = Attempt(-1, Task("warm-up", "Wait."), 0, 0, 0, 1, self.version)
        asked = await self._codec.encode(Request(attempt, 0, Observation(screen, "Wait."), []))
        async with self._in_time("its first request"):
            self._codec.decode(await self._in_flight.send(asked.body), asked)

    def _target(self) -> tuple[EngineClient, str | None]:
        """Return whom to ask, and the salt of the prefix cache."""
        # While weights change, nobody knows which ones will make the cache's entry: nobody else may use it then.
        return self._engine_weights.connected(), str(self.version) if self.state is EngineHealth.UP else None

    # ---- weights

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Put new weights into the engine, see that they arrived, and serve them.

        ``KEEP`` freezes live requests over the change; ``DRAIN`` waits for them; ``RESTART`` ends them with
        ``WorkerRestarted`` and starts the process again with the new weights (an engine that is attached to is only
        paused, its requests aborted). In all modes a process that does not run is started with them.

        Raises:
            WorkerFault: If they could not be loaded; nothing is served then until a load succeeds.
        """
        await self._supervisor.load(weights, mode)


Begin = Callable[[VllmWorker], Awaitable[None]]
"""Starts a worker, and does what else it needs before it serves."""


async def _start(worker: VllmWorker) -> None:
    await worker.start()


@asynccontextmanager
async def started(workers: Sequence[VllmWorker], *, at_once: int, begin: Begin = _start) -> AsyncIterator[None]:
    """Start workers, and close them all at the end.

    An engine's start is minutes of reading and compiling: one after the other, a pool's start is their sum. More at
    once than the machine's cores and disk carry only makes each of them slow, and too late.

    Invariant: when this is left, by whatever way, each worker was closed, and so no engine of ours runs.

    Args:
        workers: None of them started.
        at_once: Most starts under way.
        begin: How one is started.

    Raises:
        WorkerFault: The first start that failed; those under way are cancelled, those that wait never begin.
    """
    places, failed = asyncio.Semaphore(at_once), False

    async def one(worker: VllmWorker) -> None:
        nonlocal failed
        async with places:
            if failed:  # its place came free by a failure, and its cancellation is on the way
                return
            try:
                await begin(worker)
            except BaseException:
                failed = True
                raise

    try:
        try:
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(one(worker), name=f"start-{worker.engine.name}")
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        yield
    finally:
        await _close(workers)


async def _close(workers: Sequence[VllmWorker]) -> None:
    """Close all, also if whoever waits for it is cancelled meanwhile."""
    if not workers:
        return
    closing = [asyncio.create_task(worker.close(), name=f"close-{worker.engine.name}") for worker in workers]
    try:
        await asyncio.wait(closing)
    except asyncio.CancelledError:
        await asyncio.wait(closing)
        raise
    for task in closing:
        task.result()
