"""``EngineSupervisor``: the states of one engine, and its restarts after its process has ended by itself.

It waits for an attached engine instead of restarting it; then it confirms its weights or loads them again.

    start ──► up ──load──► loading ──► up
              │                 └────► unloaded ──load──► loading
              │ its process ends
              ▼
             down ──► restarted with the same weights ──► up
              │ ▲            │ a fault: once more, later
              │ └────────────┘
              └──► unloaded: those weights are gone; the next load starts it with newer ones

A fault of a request to a ``down`` engine says when to retry: when the engine is up, or only a load can bring it up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum

from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import WorkerFault, cause_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Version, Weights
from dartsim.real.engines.client import PauseMode
from dartsim.real.engines.engine_weights import EngineWeights
from dartsim.real.engines.errors import (
    EngineDied,
    EngineFault,
    EngineHung,
    EngineLost,
    EngineRefused,
    EngineRestarted,
    EngineStartFailed,
    EngineUnloaded,
    WeightsRefused,
    WeightsTorn,
    WeightsUnconfirmed,
)
from dartsim.real.engines.options import WorkerSettings

logger = logging.getLogger(__name__)

_DOWN = (EngineRefused, EngineLost, EngineHung, EngineStartFailed)
"""Faults of a load that mean that the engine is unavailable, not that it rejects these weights."""
_WEIGHTS_GONE = (WeightsTorn, WeightsRefused, WeightsUnconfirmed, EngineUnloaded)
"""Faults of a restart that mean that the last weights are not available, so that other weights may help."""


class EngineHealth(StrEnum):
    """The state of an engine."""

    DOWN = "down"
    """Not started, or its process ended."""
    LOADING = "loading"
    """Its weights are being changed."""
    UNLOADED = "unloaded"
    """The last weight sync failed, the weights it served before its process ended are gone, or its GPU is not lent."""
    UP = "up"
    """It serves."""


class EngineSupervisor:
    """One engine from its start to its end. One load or start at a time; the lock is free between two tries."""

    def __init__(
        self,
        engine_weights: EngineWeights,
        weights: Weights,
        *,
        settings: WorkerSettings,
        counts: Counter[str],
        kill: Callable[[WorkerFault], None],
        warm_up: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = EngineHealth.DOWN
        self.version: Version = weights.version
        self._engine_weights = engine_weights
        self._engine = engine_weights.engine
        self._first = self._weights = weights
        self._settings = settings
        self._counts = counts
        self._kill = kill
        self._warm_up = warm_up
        self._lock = asyncio.Lock()
        self._up = asyncio.Event()
        self._back = asyncio.Event()
        self._restarting = False
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the engine, name and confirm its weights, and watch it from then on.

        Raises:
            EngineStartFailed: If it did not become healthy.
            WeightsUnconfirmed: If it has other weights than it was started with.
        """
        async with self._lock:
            await self._bring_up()
        self._watch = asyncio.create_task(self._watch_engine(), name=f"watch-{self._engine.name}")

    async def leave(self) -> None:
        self._enter(EngineHealth.DOWN)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])
            if not watch.cancelled():
                watch.result()

    async def wait_until_up(self) -> None:
        await self._up.wait()

    async def wait_until_back(self) -> None:
        """Wait until an engine that was down serves, or only a load can make it serve."""
        await self._back.wait()

    def _enter(self, state: EngineHealth) -> None:
        self.state = state
        for event, holds in (
            (self._up, state is EngineHealth.UP),
            (self._back, state in (EngineHealth.UP, EngineHealth.UNLOADED)),
        ):
            if holds:
                event.set()
            else:
                event.clear()

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        async with self._lock:
            self._restarting = False  # from here on, loads start an engine that is down
            self._enter(EngineHealth.LOADING)
            try:
                await self._load(weights, mode)
            except EngineFault as fault:
                self._counts[f"fault/{fault.cause}"] += 1
                if isinstance(fault, _DOWN):
                    fault.back = self.wait_until_up
                raise
            finally:
                if self.state is EngineHealth.LOADING:
                    self._enter(EngineHealth.UNLOADED)

    async def release(self) -> None:
        """End live requests and the process; the next load starts it."""
        async with self._lock:
            self._restarting = False
            self._enter(EngineHealth.UNLOADED)
            self._kill(EngineRestarted(f"{self._engine.name} gave its GPU back"))
            await self._engine_weights.stop()

    async def _load(self, weights: Weights, mode: SyncMode) -> None:
        facts = await self._engine_weights.read(weights)
        if mode.kills_requests:
            self._kill(EngineRestarted(f"{self._engine.name} was restarted for version {weights.version}"))
        connected = self._engine.running and self._engine_weights.client is not None
        if self._engine.can_restart and (mode.restarts_engine or not connected):
            self._counts["restarts"] += 1
            await self._engine_weights.restart(weights.version, facts)
        else:
            if self._engine_weights.client is None:
                await self._engine_weights.connect()
            pause: PauseMode = "keep" if mode.keeps_requests else "wait" if mode.drains else "abort"
            await self._engine_weights.change(weights.version, facts, pause)
        await self._serve(weights)

    async def _serve(self, weights: Weights) -> None:
        """Let the engine answer with confirmed weights."""
        self._weights, self.version = weights, weights.version
        await self._engine_weights.connected().resume()
        self._enter(EngineHealth.UP)

    async def _bring_up(self) -> None:
        """Start the engine with the weights it should serve now."""
        weights = self._weights
        # An attached engine must be asked whether it still has its first weights.
        if weights is self._first and (self._engine.can_restart or self._watch is None):
            await self._engine_weights.start(weights)
            if self._settings.warm_up:
                await self._warm_up()
            self._enter(EngineHealth.UP)
        else:
            await self._engine_weights.restart(weights.version, await self._engine_weights.read(weights))
            await self._serve(weights)

    async def _watch_engine(self) -> None:
        """Restart the engine whenever its process ends by itself while it is up."""
        while True:
            # The next load starts an engine that ends while it is loaded or unloaded.
            await self._up.wait()
            status = await self._exit_status()
            async with self._lock:
                if self.state is not EngineHealth.UP or (status is not None and self._engine.running):
                    continue
                self._counts["deaths"] += 1
                ours = self._engine.can_restart
                problem = f"{self._engine.name} {f'ended with status {status}' if ours else 'cannot be reached'}"
                logger.warning("%s; %s", problem, "starting it again" if ours else "waiting for it")
                self._enter(EngineHealth.DOWN)
                self._kill(EngineDied(f"{problem} under the request"))
                self._restarting = True
            await self._restart_until_up()

    async def _exit_status(self) -> int | None:
        """Wait until the process has ended or the engine is lost; None if it cannot be watched: restart to be sure."""
        try:
            return await self._engine.ended()
        except Exception:
            logger.exception("%s cannot be watched", self._engine.name)
            return None

    async def _restart_until_up(self) -> None:
        """Try to start the engine until it is up, or until a load starts it; loads may come between two tries."""
        first, failures, logged = self._settings.retry_seconds, 0, ""
        while True:
            async with self._lock:
                fault = await self._try_restart() if self._restarting else None
                if fault is None:
                    self._restarting = False
                    return
                if isinstance(fault, _WEIGHTS_GONE):
                    self._enter(EngineHealth.UNLOADED)
            if str(fault) != logged:  # a missing folder would be logged every few seconds
                logged = str(fault)
                logger.warning("%s: %s", self._engine.name, logged)
            failures += 1
            await asyncio.sleep(backoff_seconds(failures, first_seconds=first, max_seconds=16 * first))

    async def _try_restart(self) -> WorkerFault | None:
        """Start the engine once and return why it is not up. After a fault nothing of it runs."""
        fault: WorkerFault
        try:
            try:
                await self._engine_weights.stop()
                await self._bring_up()
            except Exception:
                await self._engine_weights.stop()
                raise
        except WorkerFault as worker_fault:
            fault = worker_fault
        except Exception as error:  # such as a full disk; requests must not wait forever
            logger.exception("%s could not be started", self._engine.name)
            fault = EngineStartFailed(f"{self._engine.name} could not be started: {error!r}")
        else:
            return None
        self._counts[f"fault/{cause_of(fault)}"] += 1
        return fault
