"""Weight synchronisation: how the workers of a pool come to new weights.

A plan has a scope (rolling slices of k workers, or all at once) and a mode (what happens to requests that
are running on the worker: drained, kept, or killed by a restart). DART as released is a rolling restart of
two workers at a time; the coupled baseline changes all workers at once.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from dartsim.errors import WorkerFault
from dartsim.ports import SyncMode
from dartsim.rollout.slots import WorkerSlot
from dartsim.trace import Trace, WorkerState
from dartsim.types import Version, Weights

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """How weights are changed.

    Attributes:
        mode: What happens to requests that are running on a worker.
        workers_at_a_time: Size of a slice; None changes all workers at once.
        retry_seconds: Wait before another try after a failed load; doubled each time, up to 16-fold.
    """

    mode: SyncMode = SyncMode.DRAIN
    workers_at_a_time: int | None = 1
    retry_seconds: float = 5.0


class Pool(Protocol):
    """What a synchronisation asks of the pool whose workers it changes."""

    workers: list[WorkerSlot]
    trace: Trace

    def take_down(self, worker: WorkerSlot) -> None:
        """Send the worker nothing more; its live requests go on."""
        ...

    def stop(self, worker: WorkerSlot) -> None:
        """The worker serves nothing from now on, not even its live requests."""
        ...

    def bring_up(self, worker: WorkerSlot) -> None:
        """The worker serves again."""
        ...


class WeightSync:
    """Brings every worker to the newest publication, one slice after the other.

    A publication that arrives during a synchronisation supersedes it: slices that come later load the newer
    weights at once, and the others are visited again. No two loads of a worker ever overlap.
    """

    def __init__(self, service: Pool, plan: SyncPlan, weights: Weights) -> None:
        self._service = service
        self._plan = plan
        self._target = weights
        self._published = asyncio.Event()
        self._settled = asyncio.Condition()

    def publish(self, weights: Weights) -> None:
        """Make these the target; older ones than the present target are ignored."""
        if weights.version <= self._target.version:
            return
        self._target = weights
        self._published.set()

    async def settled(self, version: Version) -> None:
        """Wait until every worker serves ``version`` or a newer one."""
        workers = self._service.workers
        async with self._settled:
            await self._settled.wait_for(lambda: all(worker.version >= version for worker in workers))

    async def run(self) -> None:
        """Serve publications until cancelled."""
        while True:
            await self._published.wait()
            self._published.clear()
            await self._synchronise()

    async def _synchronise(self) -> None:
        counts = self._service.trace.counts
        while behind := [w for w in self._service.workers if w.version < self._target.version]:
            counts["syncs"] += 1
            size = self._plan.workers_at_a_time or len(behind)
            for start in range(0, len(behind), size):
                async with asyncio.TaskGroup() as slice_tasks:
                    for worker in behind[start : start + size]:
                        slice_tasks.create_task(self._refresh(worker))

    async def _refresh(self, worker: WorkerSlot) -> None:
        """Take one worker out, load the newest weights, and bring it back."""
        service, mode = self._service, self._plan.mode
        service.take_down(worker)
        if mode is SyncMode.DRAIN and worker.in_flight:
            worker.drained = asyncio.get_running_loop().create_future()
            await worker.drained
            worker.drained = None
        service.stop(worker)
        weights = await self._load(worker, mode)
        worker.version = weights.version
        service.bring_up(worker)
        async with self._settled:
            self._settled.notify_all()

    async def _load(self, worker: WorkerSlot, mode: SyncMode) -> Weights:
        """Load until it works; every try takes what is newest then."""
        wait_seconds = self._plan.retry_seconds
        while True:
            weights = self._target
            try:
                await worker.engine.load(weights, mode)
            except WorkerFault as fault:
                logger.warning("worker %d, version %d: %s", worker.index, weights.version, fault)
                self._service.trace.counts["fault/load"] += 1
                worker.track.enter(WorkerState.DOWN)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, 16 * self._plan.retry_seconds)
                worker.track.enter(WorkerState.LOADING)
            else:
                return weights
