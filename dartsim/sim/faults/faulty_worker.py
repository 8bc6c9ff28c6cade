"""Engines with faults: crashes, slowness, requests that hang, full caches, loads that fail or hang.

A call to an engine that is down fails at once, with a callback that waits until it is back; the pool takes the engine
out of rotation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from dartsim.core.errors import WorkerFault, WorkerRestarted
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Reply, Request, Weights
from dartsim.sim.faults.faulty_network import FaultyNetwork, worker
from dartsim.sim.faults.injector import LEARNER, FaultInjector
from dartsim.sim.faults.kinds import KINDS, Effect, FaultKind, Place, Scope
from dartsim.sim.faults.timing import WindowFault
from dartsim.sim.worker import SimWorker

CLIENT_SECONDS = 300.0
"""How long a client waits for an engine's answer (``vllm.request_seconds``)."""

REQUEST_EFFECTS = (Effect.FAILS, Effect.ACK_LOST, Effect.LATER, Effect.SLOWER)

CRASH, KV = KINDS["worker_crash"], KINDS["out_of_kv_memory"]


class FaultyWorker:
    """An engine with faults; implements ``dartsim.core.ports.PolicyWorker``.

    States: *up*, *down* (it crashed and is restarting with the weights it had).
    """

    def __init__(self, inner: SimWorker, injector: FaultInjector, network: FaultyNetwork) -> None:
        self.inner = inner
        self.index = inner.index
        self._injector = injector
        self._network = network
        self._env = injector.env
        self._part = worker(inner.index)
        self._up = asyncio.Event()
        self._up.set()
        self._num_crashes = 0
        members = {Scope.WORKER: inner.index}
        self._requests = injector.point((Place.REQUEST, Place.WORKER), members, effects=REQUEST_EFFECTS)
        self._loads = injector.point((Place.LOAD,), members)
        self._refusing = injector.window_fault(KV.name, inner.index)
        for window, begin in (
            (injector.window_fault(CRASH.name, inner.index), self._crash),
            (self._refusing, self._abort_all),
        ):
            if window is not None:
                self._arm(window, begin)

    @property
    def engine(self) -> Any:
        return self.inner.engine

    @property
    def version(self) -> int:
        return self.inner.version

    async def generate(self, request: Request) -> Reply:
        reply: Reply = await self._network.request(
            self._part,
            lambda: self._answer(request),
            patience=CLIENT_SECONDS,
            unanswered=lambda kind: self._fault(kind, "engine_hung"),
        )
        return reply

    async def _answer(self, request: Request) -> Reply:
        injector = self._injector
        if not self._up.is_set():
            raise self._fault(CRASH, "engine_refused", down=True)
        if self._refusing is not None and self._refusing.is_open(self._env.now):
            seconds = self._refusing.value
            injector.add_cost(KV, seconds)
            await asyncio.sleep(seconds)
            raise self._fault(KV)
        began = self._env.now
        injection = self._requests.injection(began)
        reply: Reply = await injector.carry_out(lambda: self.inner.generate(request), injection, began, self._fault)
        return reply

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        crashes = self._num_crashes

        def fetch() -> Awaitable[None]:
            return self._network.call(self._part, LEARNER, lambda: self._take(weights, mode))

        await self._network.request(self._part, fetch)
        if crashes != self._num_crashes:
            raise self._fault(CRASH, down=True)

    async def release(self) -> None:
        await self.inner.release()

    async def _take(self, weights: Weights, mode: SyncMode) -> None:
        if not self._up.is_set():
            raise self._fault(CRASH, "engine_refused", down=True)
        crashes, began = self._num_crashes, self._env.now
        injection = self._loads.injection(began)
        torn = None if injection is None else injection.ending(Effect.TORN)
        if torn is None:
            await self._injector.before_call(injection, self._fault)
        self.inner.load_fails = lambda: torn is not None or self._num_crashes > crashes
        try:
            await self.inner.load(weights, mode)
            await self._injector.after_call(injection, began)
        except WorkerFault as fault:
            if self._num_crashes > crashes:
                raise self._fault(CRASH, down=True) from fault
            if torn is not None:
                raise self._fault(torn) from fault
            raise
        finally:
            self.inner.load_fails = lambda: False

    def _arm(self, window: WindowFault, begin: Callable[[WindowFault], None]) -> None:
        """Call ``begin`` when the next window opens."""
        window.is_open(self._env.now)
        if window.begin < inf:
            self._env.call_at(max(self._env.now, window.begin), self._open, window, begin)

    def _open(self, window: WindowFault, begin: Callable[[WindowFault], None]) -> None:
        if window.is_open(self._env.now):
            begin(window)
            self._env.call_at(window.end, self._arm, window, begin)
        else:
            self._arm(window, begin)

    def _crash(self, window: WindowFault) -> None:
        self._num_crashes += 1
        self._up.clear()
        self._injector.count_window(CRASH, window)
        self._injector.add_cost(CRASH, window.end - self._env.now)
        self._env.call_at(window.end, self._up.set)
        self.inner.kill(lambda: self._fault(CRASH, down=True))

    def _abort_all(self, window: WindowFault) -> None:
        self._injector.count_window(KV, window)
        self.inner.kill(lambda: self._fault(KV))

    async def _back(self) -> None:
        await self._up.wait()

    def _fault(self, kind: FaultKind, cause: str = "", *, down: bool = False) -> WorkerFault:
        failure = kind.error(WorkerRestarted if kind in (CRASH, KV) else WorkerFault, f"worker {self.index}: ", cause)
        if down:
            failure.back = self._back
        return failure
