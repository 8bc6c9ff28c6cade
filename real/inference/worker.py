"""``VllmWorker``: one vLLM engine behind the port ``PolicyWorker``.

    generate:  request --Asker--> tokens, screenshots --HTTP--> tokens, log-probabilities, versions --Asker--> reply
    load:      weights --Spool--> folder --Ledger--> whole? --pause, Transfer, resume--> engine --Ledger--> confirmed

States: up; loading; unloaded (a load failed: nothing is served until one succeeds); down (the process ended: it is
started again, gets its weights back, and is up).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from dartsim.errors import WorkerFault
from dartsim.ports import SyncMode
from dartsim.types import Attempt, Observation, Reply, Request, Task, Version, Weights
from real.inference.asking import Asker
from real.inference.client import EngineClient, PauseMode
from real.inference.errors import (
    EngineDied,
    EngineFault,
    EngineHung,
    EngineLost,
    EngineRefused,
    EngineRestarted,
    EngineStartFailed,
    EngineUnloaded,
    WeightsUnconfirmed,
)
from real.inference.launcher import Engine
from real.inference.ledger import FolderFacts, Ledger
from real.inference.metrics import EngineLoad
from real.inference.sending import Sender
from real.inference.settings import State, WorkerSettings
from real.inference.weights import FolderReload, Spool, Transfer

logger = logging.getLogger(__name__)

_PAUSES: dict[SyncMode, PauseMode] = {SyncMode.KEEP: "keep", SyncMode.DRAIN: "wait", SyncMode.RESTART: "abort"}
_DOWN = (EngineRefused, EngineLost, EngineHung, EngineStartFailed)
"""Faults of a load that say that the engine is not there, rather than that it does not want these weights."""


class VllmWorker:
    """One engine; implements ``dartsim.ports.PolicyWorker``. Use it as ``async with``.

    Every reply carries the log-probabilities of the distribution it was sampled from (``processed_logprobs``: after
    temperature and grammar) and the versions of its tokens, as the engine itself counted them. ``Reply.entropies``
    is what ``Asker`` makes of the likeliest tokens, or None.

    Prefixes are cached by version: a request that is sent after a change of weights never hits an entry made before
    it, even where kept requests still hold its memory (the engine's cache cannot be reset then). One that was sent
    before and first served after the change may: so ``Reply.oldest_version`` is at most the version it was sent to.

    Attributes:
        index: Its number in the pool.
        engine: The server.
        state: What it is good for.
        version: Of the weights it serves, or served last.
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
        self.version: Version = weights.version
        self.counts: Counter[str] = Counter()
        self.state = State.DOWN
        self._asker = asker
        self._first = weights
        self._weights = weights
        self._transfer = transfer or FolderReload()
        self._ledger = ledger or Ledger()
        self._spool = spool
        self._settings = settings or WorkerSettings()
        self._client: EngineClient | None = None
        self._one_load = asyncio.Lock()
        self._up = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._sender = Sender(engine.name, self._settings, self._target)

    # ---- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the engine, name and confirm its weights, and watch it from then on.

        Raises:
            EngineStartFailed: If it did not become healthy.
            WeightsUnconfirmed: If it holds other weights than those it was started with.
        """
        try:
            async with self._one_load:
                await self._bring_up()
        except BaseException:
            await self.close()
            raise
        self._watch = asyncio.create_task(self._watch_engine(), name=f"watch-{self.engine.name}")

    async def close(self) -> None:
        """End all requests and the engine, if it is ours. May be called twice."""
        self._enter(State.DOWN)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None
        self._sender.kill(EngineRestarted(f"{self.engine.name} was closed"))
        await self._sender.settle()
        await self._disconnect()
        await self.engine.stop()

    async def wait_until_up(self) -> None:
        """Wait until the engine serves."""
        await self._up.wait()

    async def read_load(self) -> EngineLoad:
        """Read the engine's own metrics.

        Raises:
            WorkerFault: If it did not answer.
        """
        return await self._connected().load()

    # ---- requests

    async def generate(self, request: Request) -> Reply:
        """Answer one request. Cancelling the call, or its time-out, ends the request in the engine.

        Raises:
            WorkerFault: If the engine failed it, with a class that has a ``cause``.
        """
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return await self._generate(request)
        except TimeoutError:
            self.counts["fault/engine_hung"] += 1
            raise EngineHung(
                f"{self.engine.name} had not answered turn {request.turn} of attempt {request.attempt.id} after "
                f"{self._settings.request_seconds:g} s; the request was aborted"
            ) from None
        except WorkerFault as fault:
            self.counts[f"fault/{getattr(fault, 'cause', 'worker_fault')}"] += 1
            if self.state is State.DOWN:
                fault.back = self.wait_until_up
            raise

    async def _generate(self, request: Request) -> Reply:
        if self.state is not State.UP:
            await self._until_up()
        asked = await self._asker.ask(request)
        if self.state is not State.UP:
            await self._until_up()
        sent_at = self.version
        answer = await self._sender.send(asked.body)
        read = self._asker.read(answer, asked)
        self.counts["requests"] += 1
        self.counts["prompt_tokens"] += asked.prompt_tokens
        self.counts["cached_tokens"] += read.cached_tokens
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
        )

    async def _until_up(self) -> None:
        if self.state is State.LOADING and self._client is not None:
            return  # the engine itself lets it wait, or refuses it for a while
        restarting = self.state is State.LOADING
        try:
            async with asyncio.timeout(self._settings.patience_seconds):
                await self._up.wait()
        except TimeoutError:
            text = f"{self.engine.name} is {self.state}, and was not up within {self._settings.patience_seconds:g} s"
            raise (EngineRestarted(text) if restarting else EngineUnloaded(text)) from None

    # ---- weights

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Put new weights into the engine, see that they arrived, and serve them.

        ``KEEP`` freezes live requests over the change; ``DRAIN`` waits for them; ``RESTART`` ends them with
        ``WorkerRestarted`` and starts the process again with the new weights (an engine that is attached to is only
        paused, its requests aborted).

        Raises:
            WorkerFault: If they could not be loaded; nothing is served then until a load succeeds.
        """
        async with self._one_load:
            self._enter(State.LOADING)
            try:
                await self._load(weights, mode)
            except EngineFault as fault:
                self.counts[f"fault/{fault.cause}"] += 1
                if isinstance(fault, _DOWN):
                    fault.back = self.wait_until_up
                raise
            finally:
                if self.state is State.LOADING:
                    self._enter(State.UNLOADED)

    async def _load(self, weights: Weights, mode: SyncMode) -> None:
        folder = await self._folder(weights)
        facts = await asyncio.to_thread(self._ledger.inspect, folder)
        if mode is SyncMode.RESTART:
            self._sender.kill(EngineRestarted(f"{self.engine.name} was restarted for version {weights.version}"))
        if self.engine.can_restart and (mode is SyncMode.RESTART or not self.engine.running):
            await self._restart(weights, facts)
            return
        await self._change(weights, facts, mode)
        await self._serve(weights)

    async def _change(self, weights: Weights, facts: FolderFacts, mode: SyncMode) -> None:
        """Change the weights of an engine that runs, which is paused meanwhile."""
        client = self._connected()
        await client.pause(_PAUSES[mode])
        await self._transfer.put(client, facts.path, weights.version)
        await client.reset_caches(running=self._settings.recompute)
        await self._confirm(weights.version, facts)

    async def _serve(self, weights: Weights) -> None:
        """Let the engine answer under weights that were confirmed."""
        self._weights, self.version = weights, weights.version
        await self._connected().resume()
        self._enter(State.UP)

    async def _confirm(self, version: Version, facts: FolderFacts) -> None:
        client = self._connected()
        label = await client.labelled()
        if label != str(version):
            raise WeightsUnconfirmed(f"{self.engine.name} names its weights {label!r}, wanted {str(version)!r}")
        if self._settings.confirm:
            checksums = await client.checksums()
            self._ledger.confirm(version, facts, checksums)

    async def _restart(self, weights: Weights, facts: FolderFacts) -> None:
        """Start the process again, with the folder of the weights if it can be started from."""
        self.counts["restarts"] += 1
        await self._disconnect()
        await self.engine.stop()
        whole = facts.path.is_dir() and (facts.path / "config.json").is_file()
        await self.engine.start(facts.path if whole else None)
        await self._connect()
        if whole:
            await self._connected().label(weights.version)
            await self._confirm(weights.version, facts)
        else:
            await self._change(weights, facts, SyncMode.DRAIN)
        await self._serve(weights)

    async def _folder(self, weights: Weights) -> Path:
        if self._spool is not None:
            return await self._spool.folder(weights)
        if not isinstance(weights.source, str | Path):
            raise EngineUnloaded(
                f"version {weights.version} came as {type(weights.source).__name__}; wanted a folder, or give the "
                "worker a Spool"
            )
        return Path(weights.source)

    # ---- the engine's life

    async def _bring_up(self) -> None:
        """Start the engine with the weights it should serve now."""
        if self._weights is not self._first:
            folder = await self._folder(self._weights)
            await self._restart(self._weights, await asyncio.to_thread(self._ledger.inspect, folder))
            return
        await self.engine.start()
        await self._connect()
        client = self._connected()
        if await client.paused():
            await client.resume()  # whoever used it before left it so
        await client.label(self.version)
        if self._first.source is not None:
            facts = await asyncio.to_thread(self._ledger.inspect, Path(self._first.source))
            await self._confirm(self.version, facts)
        self._enter(State.UP)
        if self._settings.warm_up:
            await self._warm_up()

    async def _warm_up(self) -> None:
        """Answer a blank screen once."""
        screen = np.zeros((112, 112, 3), dtype=np.uint8)
        attempt = Attempt(-1, Task("warm-up", "Wait."), 0, 0, 0, 1, self.version)
        before = self.counts
        self.counts = Counter()
        await self._generate(Request(attempt, 0, Observation(screen, "Wait."), []))
        self.counts = before

    async def _watch_engine(self) -> None:
        """Start the engine again whenever its process ends by itself while it is up."""
        while True:
            # An engine that is being loaded, or was not loaded, is started again by the next load.
            await self._up.wait()
            status = await self.engine.ended()
            async with self._one_load:
                if self.engine.running or self.state is not State.UP:
                    continue
                logger.warning("%s ended with status %s; starting it again", self.engine.name, status)
                self._enter(State.DOWN)
                self._sender.kill(EngineDied(f"{self.engine.name} ended with status {status} under the request"))
                await self._disconnect()
                await self._until_started()

    async def _until_started(self) -> None:
        self.counts["deaths"] += 1
        wait_seconds = self._settings.retry_seconds
        while True:
            await self.engine.stop()
            try:
                await self._bring_up()
            except WorkerFault as fault:
                logger.warning("%s: %s", self.engine.name, fault)
                await self._disconnect()
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, 16 * self._settings.retry_seconds)
            else:
                return

    async def _connect(self) -> None:
        await self._disconnect()
        self._client = EngineClient(self.engine.url)
        await self._transfer.prepare(self._client)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _connected(self) -> EngineClient:
        if self._client is None:
            raise EngineStartFailed(f"{self.engine.name} is not up; start the worker first")
        return self._client

    def _target(self) -> tuple[EngineClient, str | None]:
        """Return whom to ask, and the salt of the prefix cache."""
        # While weights change, nobody knows which ones will make the cache's entry: nobody else may use it then.
        return self._connected(), str(self.version) if self.state is State.UP else None

    def _enter(self, state: State) -> None:
        self.state = state
        if state is State.UP:
            self._up.set()
        else:
            self._up.clear()
