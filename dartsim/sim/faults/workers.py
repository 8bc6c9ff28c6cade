"""Workers that the table's faults strike: crashes, slowness, hung requests, full caches, torn and hung loads.

What is asked of a worker that is down fails at once, with the way to learn when it is back; the pool sets it apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

from dartsim.core.errors import WorkerFault, WorkerRestarted
from dartsim.core.ports import SyncMode
from dartsim.core.types import Reply, Request, Weights
from dartsim.sim.faults.kinds import Effect, FaultKind, Place, Scope
from dartsim.sim.faults.messages import Network, Unanswered, worker
from dartsim.sim.faults.spells import Spells
from dartsim.sim.faults.striking import CONTROL, LEARNER, Faults
from dartsim.sim.faults.table import KINDS
from dartsim.sim.worker import SimWorker

CLIENT_SECONDS = 300.0
"""How long a client waits for an answer of an engine (``vllm.request_seconds``)."""

CRASH, KV = KINDS["worker_crash"], KINDS["out_of_kv_memory"]


class StruckWorker:
    """A worker that faults strike; implements ``dartsim.core.ports.PolicyWorker``.

    States: *up*, *down* (it crashed, and is started again with the weights it had).

    Args:
        inner: The worker.
        faults: What strikes.
        network: The way to it.
    """

    def __init__(self, inner: SimWorker, faults: Faults, network: Network) -> None:
        self.inner = inner
        self.index = inner.index
        self._faults = faults
        self._network = network
        self._env = faults.env
        self._part = worker(inner.index)
        self._up = asyncio.Event()
        self._up.set()
        self._num_crashes = 0
        members = {Scope.WORKER: inner.index}
        self._requests = faults.hazards(
            (Place.REQUEST, Place.WORKER), members, effects=(Effect.FAILS, Effect.SLOWER), of=Scope.WORKER
        )
        self._loads = faults.hazards((Place.LOAD,), members, of=Scope.WORKER)
        self._refusing = faults.spells(KV.name, inner.index) if faults.active(KV.name) else None
        if faults.active(CRASH.name):
            self._await(faults.spells(CRASH.name, inner.index), self._crash)
        if self._refusing is not None:
            self._await(self._refusing, self._throw_out)

    @property
    def engine(self) -> Any:
        """The engine behind it."""
        return self.inner.engine

    @property
    def version(self) -> int:
        """What it serves."""
        return self.inner.version

    async def generate(self, request: Request) -> Reply:
        """Answer one request, unless something strikes."""
        try:
            reply: Reply = await self._network.call(
                CONTROL, self._part, lambda: self._answer(request), patience=CLIENT_SECONDS
            )
        except Unanswered as cut:
            raise self._fault(cut.kind, "engine_hung") from None
        await self._network.standstill()
        return reply

    async def _answer(self, request: Request) -> Reply:
        faults = self._faults
        if not self._up.is_set():
            raise self._fault(CRASH, "engine_refused", down=True)
        if self._refusing is not None and self._refusing.at(self._env.now):
            seconds = self._refusing.value
            faults.cost(KV, seconds)
            await asyncio.sleep(seconds)
            raise self._fault(KV, KV.cause)
        began = self._env.now
        blow = self._requests.look(began)
        await faults.fail(blow, lambda kind: self._fault(kind, kind.cause))
        reply = await self.inner.generate(request)
        await faults.suffer(blow, began)
        return reply

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Take new weights from the learner, unless something strikes."""
        crashes = self._num_crashes

        async def fetched() -> None:
            await self._network.call(self._part, LEARNER, lambda: self._take(weights, mode))

        await self._network.call(CONTROL, self._part, fetched)
        await self._network.standstill()
        if crashes != self._num_crashes:
            raise self._fault(CRASH, CRASH.cause, down=True)

    async def _take(self, weights: Weights, mode: SyncMode) -> None:
        if not self._up.is_set():
            raise self._fault(CRASH, "engine_refused", down=True)
        crashes = self._num_crashes
        blow = self._loads.look(self._env.now)
        if blow is not None and blow.kind is not None and blow.kind.effect is Effect.FAILS:
            await self._faults.fail(blow, lambda kind: self._fault(kind, kind.cause))
        torn = blow.kind if blow is not None else None
        self.inner.spoils_load = lambda: torn is not None or self._num_crashes > crashes
        try:
            await self.inner.load(weights, mode)
        except WorkerFault as fault:
            if self._num_crashes > crashes:
                raise self._fault(CRASH, CRASH.cause, down=True) from fault
            if torn is not None:
                raise self._fault(torn, torn.cause) from fault
            raise
        finally:
            self.inner.spoils_load = None

    # ---- what strikes by itself

    def _await(self, spells: Spells, strike: Callable[[Spells], None]) -> None:
        """Strike when the next spell begins."""
        spells.at(self._env.now)
        if spells.begin < inf:
            self._env.call_at(max(self._env.now, spells.begin), self._begin, spells, strike)

    def _begin(self, spells: Spells, strike: Callable[[Spells], None]) -> None:
        if spells.at(self._env.now):
            strike(spells)
            self._env.call_at(spells.end, self._await, spells, strike)
        else:
            self._await(spells, strike)

    def _crash(self, spells: Spells) -> None:
        self._num_crashes += 1
        self._up.clear()
        self._faults.notice(CRASH, spells)
        self._faults.cost(CRASH, spells.end - self._env.now)
        self._env.call_at(spells.end, self._up.set)
        self.inner.kill(lambda: self._fault(CRASH, CRASH.cause, down=True))

    def _throw_out(self, spells: Spells) -> None:
        self._faults.notice(KV, spells)
        self.inner.kill(lambda: self._fault(KV, KV.cause))

    async def _back(self) -> None:
        await self._up.wait()

    def _fault(self, kind: FaultKind, cause: str, *, down: bool = False) -> WorkerFault:
        error = WorkerRestarted if kind in (CRASH, KV) else WorkerFault
        found = error(f"worker {self.index}: {kind.what} (drawn fault {kind.name})")
        found.cause = cause  # type: ignore[attr-defined]
        if down:
            found.back = self._back
        return found
