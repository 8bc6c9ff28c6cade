"""``VllmWorker``: one vLLM engine behind the port ``PolicyWorker``.

    generate:  request --RequestCodec--> tokens, screenshots --HTTP--> tokens, log-probabilities --RequestCodec--> reply
    load:      weights --EngineSupervisor, EngineWeights--> engine

Its states are those of ``EngineSupervisor``.
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
from dartsim.real.engines.errors import EngineBadReply, EngineHung, EngineRestarted, EngineUnloaded
from dartsim.real.engines.in_flight import InFlight
from dartsim.real.engines.launcher import Engine
from dartsim.real.engines.ledger import WeightsLedger
from dartsim.real.engines.options import WorkerSettings
from dartsim.real.engines.request_codec import DecodedReply, EncodedRequest, RequestCodec
from dartsim.real.engines.supervisor import EngineHealth, EngineSupervisor
from dartsim.real.engines.weights import Spool


class VllmWorker:
    """One engine; implements ``dartsim.core.ports.PolicyWorker``. Use it as ``async with``.

    Every reply carries the log-probabilities of the distribution it was sampled from (``processed_logprobs``: after
    temperature and grammar) and the versions of its tokens, as the engine itself counted them. ``Reply.entropies``
    are lower bounds from the likeliest tokens (see ``RequestCodec``), or None.

    Prefixes are cached by version: a request that is sent after a weight sync never hits an entry made before it, even
    if kept requests still hold its memory (the engine's cache cannot be reset then). One that was sent before and first
    served after the sync may: so ``Reply.oldest_version`` is at most the version it was sent to.
    """

    def __init__(
        self,
        index: int,
        engine: Engine,
        codec: RequestCodec,
        *,
        weights: Weights,
        ledger: WeightsLedger | None = None,
        spool: Spool | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        self.index = index
        self.engine = engine
        self.counts: Counter[str] = Counter()
        self._codec = codec
        self._settings = settings or WorkerSettings()
        self._engine_weights = EngineWeights(engine, ledger=ledger, spool=spool)
        self._in_flight = InFlight(engine.name, self._settings, self._target, refused=self._refused)
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
        return self._supervisor.state

    @property
    def version(self) -> Version:
        return self._supervisor.version

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        try:
            await self._supervisor.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        try:
            await self._supervisor.leave()
        finally:
            self._in_flight.kill(EngineRestarted(f"{self.engine.name} was closed"))
            await self._in_flight.settle()
            await self._engine_weights.stop()

    async def wait_until_up(self) -> None:
        await self._supervisor.wait_until_up()

    async def generate(self, request: Request) -> Reply:
        """Answer one request. Canceling the call, or its time limit, ends the request in the engine."""
        try:
            async with self._in_time(f"turn {request.turn} of attempt {request.attempt.id}"):
                encoded, decoded, sent_at = await self._generate(request)
        except WorkerFault as fault:
            self.counts[f"fault/{cause_of(fault)}"] += 1
            if self.state is EngineHealth.DOWN:
                fault.back = self._supervisor.wait_until_back
            raise
        self.counts["requests"] += 1
        self.counts["prompt_tokens"] += encoded.prompt_tokens
        self.counts["cached_tokens"] += decoded.cached_tokens or 0
        self.counts["response_tokens"] += len(decoded.tokens)
        return Reply(
            decoded.action,
            decoded.newest,
            min(decoded.oldest, sent_at),
            self.index,
            encoded.prompt_tokens,
            len(decoded.tokens),
            decoded.tokens,
            decoded.logprobs,
            decoded.entropies,
            decoded.cached_tokens,
        )

    async def _generate(self, request: Request) -> tuple[EncodedRequest, DecodedReply, Version]:
        """Ask the engine once it is up; return the request, its answer, and the version it was sent to."""
        if self.state is not EngineHealth.UP:
            await self._until_up()
        encoded = self._codec.encode(request)
        if self.state is not EngineHealth.UP:
            await self._until_up()
        settings, tries = self._settings, 1
        while True:
            sent_at = self.version
            answer = await self._in_flight.send(encoded.body, encoded.pictures)
            try:
                decoded = self._codec.decode(answer, encoded)
                if self.state is EngineHealth.UP and decoded.newest > self.version:
                    raise EngineBadReply(
                        f"{self.engine.name} answered from version {decoded.newest}, which it was not given"
                    )
            except EngineBadReply:
                await self._check_name()
                raise
            if tries >= settings.tries or settings.readable is None or settings.readable(decoded.action):
                return encoded, decoded, sent_at
            self.counts["malformed"] += 1
            encoded = encoded.resampled(tries)
            tries += 1

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
        loading = self.state is EngineHealth.LOADING
        if loading and self._engine_weights.client is not None:
            return  # the engine itself queues it, or refuses it for a while
        try:
            async with asyncio.timeout(self._settings.patience_seconds):
                await self._supervisor.wait_until_up()
        except TimeoutError:
            text = f"{self.engine.name} is {self.state}, and was not up within {self._settings.patience_seconds:g} s"
            raise (EngineRestarted(text) if loading else EngineUnloaded(text)) from None

    async def _warm_up(self) -> None:
        """Have the engine answer a blank screen before its first real request; nothing is counted."""
        screen = np.zeros((112, 112, 3), dtype=np.uint8)
        attempt = Attempt(-1, Task("warm-up", "Wait."), 0, 0, 0, 1, self.version)
        encoded = self._codec.encode(Request(attempt, 0, Observation(screen, "Wait."), []))
        async with self._in_time("its first request"):
            self._codec.decode(await self._in_flight.send(encoded.body, encoded.pictures), encoded)

    def _target(self) -> tuple[EngineClient, str | None]:
        """Return the client to ask and the salt of the prefix cache."""
        # While weights change, it is unknown which ones will make the cache's entry, so no other request may use it.
        return self._engine_weights.connected(), str(self.version) if self.state is EngineHealth.UP else None

    async def _check_name(self) -> None:
        """Confirm or reload the weights of an engine that was restarted, as the names of its weights show."""
        if self.state is EngineHealth.UP and await self._engine_weights.connected().weight_label() != str(self.version):
            self._refused()
            await asyncio.sleep(self._settings.retry_seconds)  # the supervisor notices

    def _refused(self) -> None:
        if self.state is EngineHealth.UP:  # otherwise a load or a start will notice
            self.engine.mark_unreachable()

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Put new weights into the engine, confirm them, and serve them.

        ``KEEP`` freezes live requests during the change; ``DRAIN`` waits for them; ``RESTART`` ends them with
        ``WorkerRestarted`` and restarts the process with the new weights (an attached engine is only paused, its
        requests aborted). In all modes a process that does not run is started with them.
        """
        await self._supervisor.load(weights, mode)

    async def release(self) -> None:
        """End live requests with ``WorkerRestarted``, and the process, which the next load starts again."""
        await self._supervisor.release()


async def _start(worker: VllmWorker) -> None:
    await worker.start()


@asynccontextmanager
async def running(
    workers: Sequence[VllmWorker], *, at_once: int, start: Callable[[VllmWorker], Awaitable[None]] = _start
) -> AsyncIterator[None]:
    """Start workers, and close them all at the end.

    An engine takes minutes to read and compile, so sequential starts add up. More concurrent starts than the machine's
    cores and disk can handle make each of them slow, up to its time limit.

    Invariant: on exit, however it happens, each worker was closed, so that no engine of ours runs.

    Raises:
        WorkerFault: The first start that failed; those under way are canceled, those that wait never begin.
    """
    places, failed = asyncio.Semaphore(at_once), False

    async def start_one(worker: VllmWorker) -> None:
        nonlocal failed
        async with places:
            if failed:  # a failure freed this place, and cancellation is about to arrive
                return
            try:
                await start(worker)
            except BaseException:
                failed = True
                raise

    try:
        try:
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(start_one(worker), name=f"start-{worker.engine.name}")
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        yield
    finally:
        await _close(workers)


async def _close(workers: Sequence[VllmWorker]) -> None:
    """Close all, even if the caller is canceled meanwhile."""
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
