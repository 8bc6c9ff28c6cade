"""A model in threads of an actor: ``dartsim.real.local.LocalWorker`` on some node of a cluster.

A restarted actor has no weights and refuses requests until it has received those that its worker served last, so that
no reply is attributed to wrong weights.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from dartsim.core.errors import WorkerFault
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Observation, Reply, Request, Turn, Version, Weights
from dartsim.real.local import LocalWorker, SamplingPolicy
from dartsim.real.ray_cluster.errors import EngineHostLost, PartGone, PartLost
from dartsim.real.ray_cluster.parts import Part

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class WorkerHost:
    """In the actor: one worker, once it has weights."""

    def __init__(self, index: int, make: Callable[[], SamplingPolicy]) -> None:
        self._index = index
        self._make = make
        self._worker: LocalWorker | None = None

    async def generate(self, request: Request) -> Reply:
        if self._worker is None:
            raise PartLost(f"worker {self._index} was restarted and has no weights yet")
        return await self._worker.generate(request)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        if self._worker is None:
            policy = await asyncio.to_thread(self._first, weights)
            self._worker = LocalWorker(self._index, policy, version=weights.version)
            return
        await self._worker.load(weights, mode)

    def _first(self, weights: Weights) -> SamplingPolicy:
        policy = self._make()
        policy.add(weights)
        return policy


class Shared:
    """Shared by the workers of a pool: the ``keep`` newest weights in Ray's store, and which workers are left."""

    def __init__(self, *, keep: int = 4) -> None:
        self._keep = keep
        self._held: dict[Version, tuple[Weights, Any]] = {}
        self._left: set[int] = set()
        self._nobody = asyncio.Event()

    def join(self, index: int) -> None:
        self._left.add(index)

    def leave(self, index: int) -> None:
        """Remove a worker whose actor is gone for good."""
        self._left.discard(index)
        if not self._left:
            self._nobody.set()

    async def nobody_left(self) -> None:
        """Wait until no worker of the pool is left."""
        await self._nobody.wait()

    def reference(self, weights: Weights) -> Any:
        import ray

        held = self._held.get(weights.version)
        if held is None or held[0].source is not weights.source:
            held = self._held[weights.version] = (weights, ray.put(weights))
            while len(self._held) > self._keep:
                del self._held[min(self._held)]
        return held[1]


class RayWorker:
    """A worker on some node; implements ``dartsim.core.ports.PolicyWorker``. Start it before use."""

    def __init__(
        self, index: int, part: Part, *, weights: Weights, shared: Shared | None = None, images: int | None = None
    ) -> None:
        self.index = index
        self.part = part
        self.version = weights.version
        self.counts: Counter[str] = Counter()
        self._weights = weights
        self._shared = shared or Shared()
        self._images = images
        self._up = asyncio.Event()
        self._load_lock = asyncio.Lock()
        self._returning: asyncio.Task[None] | None = None
        self._gone: PartGone | None = None

    async def start(self, ready_seconds: float = 120.0) -> None:
        """Wait until the actor is placed, and give it its first weights.

        Raises:
            ConfigError: If it was not placed in time.
            PartLost: If it ended.
        """
        await self.part.placed(ready_seconds)
        await self._give(self._weights, SyncMode.DRAIN)
        self._shared.join(self.index)
        self._up.set()

    async def generate(self, request: Request) -> Reply:
        if not self._up.is_set():
            raise self._fault("is not up")
        if self._gone is not None:
            raise self._fault(str(self._gone))
        try:
            return _copied(await self.part.call("generate", trimmed(request, self._images)))
        except PartLost as lost:
            self._lost(lost)
            raise self._fault(str(lost)) from lost

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        async with self._load_lock:
            if self._gone is not None:
                raise self._fault(str(self._gone))
            try:
                await self._give(weights, mode)
            except PartLost as lost:
                self._lost(lost)
                raise self._fault(str(lost)) from lost
            self._weights, self.version = weights, weights.version
            self._come_back()

    async def until_up(self) -> None:
        """Wait until it serves again; forever if its actor is gone, while there are other workers.

        Raises:
            PartGone: If no worker is left.
        """
        await self._up.wait()
        if self._gone is not None:
            await self._shared.nobody_left()
            raise self._gone

    def close(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
        self._up.clear()
        self.part.kill()

    def _fault(self, why: str) -> WorkerFault:
        fault = EngineHostLost(f"worker {self.index}: {why}")
        fault.back = self.until_up
        return fault

    def _lost(self, lost: PartLost) -> None:
        """Serve nothing until the actor was restarted and has its weights."""
        if not self._up.is_set() and self._returning is not None:
            return
        logger.warning("%s", lost)
        self.counts["lost"] += 1
        self._up.clear()
        self._returning = asyncio.create_task(self._return(), name=f"back {self.part.name}")

    async def _return(self) -> None:
        try:
            while not self._up.is_set():
                await self.part.until_up()
                async with self._load_lock:
                    if self._up.is_set():  # a load came first
                        return
                    try:
                        await self._give(self._weights, SyncMode.DRAIN)
                    except PartLost as lost:
                        logger.warning("%s", lost)
                        continue
                    except WorkerFault as fault:
                        logger.warning("%s", fault)
                        await asyncio.sleep(_RETRY_SECONDS)
                        continue
                    self._come_back()
        except PartGone as gone:
            logger.error("%s", gone)
            self._gone = gone
            self._shared.leave(self.index)
            self._up.set()  # wakes those who wait

    def _come_back(self) -> None:
        if not self._up.is_set():
            self.counts["back"] += 1
            self._up.set()
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()  # a load came first
        self._returning = None

    async def _give(self, weights: Weights, mode: SyncMode) -> None:
        await self.part.call("load", self._shared.reference(weights), mode)


def trimmed(request: Request, images: int | None) -> Request:
    """Return a request with only its newest ``images`` screenshots, including the present one."""
    if images is None:
        return request
    first = request.turn + 1 - images
    history = [turn if past >= first else _blank(turn) for past, turn in enumerate(request.history)]
    return request._replace(history=history)


def _blank(turn: Turn) -> Turn:
    return Turn(Observation(None, turn.observation.instruction), turn.reply)


def _copied(reply: Reply) -> Reply:
    """Copy a reply's arrays out of Ray's object store."""
    return Reply._make(np.array(value) if isinstance(value, np.ndarray) else value for value in reply)
