"""``RolloutService``: the inference pool, which routes requests to engines while their weights change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from dartsim.config.sections.rollout import RolloutConfig
from dartsim.core.answers import text_of, worker_fault
from dartsim.core.errors import WorkerFault, WorkerRestarted
from dartsim.core.ports import PolicyWorker
from dartsim.core.types import Attempt, Version, Weights
from dartsim.observe import DesktopState, EngineState, Recorder, Track
from dartsim.rollout.routers import Router
from dartsim.rollout.sync import RETRY_SECONDS, WeightSync
from dartsim.rollout.turns import PoolSession, Session, WorkerSlot


class Service(Protocol):
    """Answers the requests of attempts."""

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open the session of an attempt; ``track`` is the desktop that waits for its replies."""
        ...


class RolloutService:
    """Routes requests to workers and loads the newest published weights into every worker.

    Invariants: a request is only ever sent to a worker that is up; after a sync every worker serves the newest
    published version; a publication during a sync supersedes it. A worker that is down is out of rotation: nothing
    waits for it, and it catches up when it is back.
    """

    def __init__(
        self,
        engines: Sequence[PolicyWorker],
        *,
        weights: Weights,
        router: Router,
        config: RolloutConfig,
        recorder: Recorder,
        lent: int = 0,
    ) -> None:
        self.recorder = recorder
        self.router = router
        self.max_tries = config.request_tries
        self.workers = [
            WorkerSlot(index, engine, recorder.engines.tracks[index], weights.version)
            for index, engine in enumerate(engines)
        ]
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stopped = False
        self._returns: asyncio.TaskGroup | None = None
        self._returning: dict[int, asyncio.Task[None]] = {}
        """Tasks of workers that are down, by index."""
        self.lent = self.workers[len(engines) - lent :]
        """Workers on the trainer's GPUs, out of rotation until they join."""
        for worker in self.workers:
            if worker in self.lent:
                worker.out_of_rotation = True
            else:
                self.bring_up(worker)
        self.sync = WeightSync(self, config.sync, config.limits.load_seconds, weights)

    def session(self, attempt: Attempt, track: Track) -> Session:
        return PoolSession(self, attempt, track)

    def note_drained(self, worker: WorkerSlot) -> None:
        """Wake the sync that drains a worker, whose last live request has ended."""
        if worker.drained is not None and not worker.drained.done():
            worker.drained.set_result(None)

    def count_fault(self, fault: WorkerFault) -> None:
        kind = "restarted" if isinstance(fault, WorkerRestarted) else "worker"
        self.recorder.counts[f"fault/request_{kind}"] += 1

    def remove_from_rotation(self, worker: WorkerSlot, fault: WorkerFault) -> None:
        """Send no requests to a worker until it is back, if the fault says that it is down."""
        if fault.back is None or not worker.routable or self._returns is None:
            return
        self.recorder.counts["fault/engine_down"] += 1
        self.recorder.engine_failed(worker.index, text_of(fault))
        self.router.remove(worker)
        worker.track.enter(EngineState.DOWN)
        worker.out_of_rotation = True
        self._returning[worker.index] = self._returns.create_task(self._bring_back(worker, fault.back))

    async def _bring_back(self, worker: WorkerSlot, back: Callable[[], Awaitable[None]]) -> None:
        try:
            await back()
        except BaseException as error:
            fault = worker_fault(error)  # requests go to it again, and remove it again if it is still down
            self.recorder.engine_failed(worker.index, text_of(fault))
            await asyncio.sleep(RETRY_SECONDS)
        del self._returning[worker.index]
        worker.out_of_rotation = False
        self.bring_up(worker)
        await self.sync.retry_missed()  # it may have missed a publication

    async def join(self, worker: WorkerSlot) -> None:
        """Load the newest weights into a worker on a lent GPU, and send it requests."""
        worker.track.enter(EngineState.LOADING)
        await self.sync.bring_in(worker)

    async def leave(self, worker: WorkerSlot) -> None:
        """Take a worker on a lent GPU out of rotation, up, down or joining, and have it give the GPU back."""
        if (returning := self._returning.pop(worker.index, None)) is not None:
            returning.cancel()
            await asyncio.wait([returning])
        worker.out_of_rotation = True
        if worker.routable:
            await self.sync.take_down(worker)
        self.stop(worker)
        await self.sync.release(worker)
        worker.track.enter(EngineState.OFF)

    @property
    def waiting(self) -> int:
        """Number of requests that wait until a worker is up."""
        return sum(not waiter.done() for waiter in self._waiting)

    async def wait_until_up(self, track: Track) -> None:
        """Wait until a worker is up; only the wait for a weight sync has its own state."""
        while not self.router.num_routable:
            changing = any(not worker.out_of_rotation for worker in self.workers)
            track.enter(DesktopState.SYNC_WAIT if changing else DesktopState.GENERATING)
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        track.enter(DesktopState.GENERATING)

    def publish(self, weights: Weights) -> None:
        self.sync.publish(weights)

    async def settled(self, version: Version) -> None:
        """Wait until every worker that is not down, and at least one, serves ``version`` or a newer one."""
        await self.sync.settled(version)

    async def run(self) -> None:
        """Sync weights until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._returns:
                await self.sync.run(self._returns)
        finally:
            self._returns = None

    def take_down(self, worker: WorkerSlot) -> None:
        """Send a worker no new requests; its live ones continue."""
        self.router.remove(worker)
        if worker.in_flight:
            worker.track.enter(EngineState.DRAINING)

    def stop(self, worker: WorkerSlot) -> None:
        """Record that a worker stops serving, its live requests included."""
        worker.track.enter(EngineState.LOADING)
        if self._stopped:
            return
        if not any(w.routable or w.track.state == EngineState.DRAINING for w in self.workers):
            self._stopped = True
            self.recorder.desktops.swap(DesktopState.GENERATING, DesktopState.SYNC_WAIT)

    def bring_up(self, worker: WorkerSlot) -> None:
        worker.track.enter(EngineState.BUSY if worker.in_flight else EngineState.IDLE)
        self.router.add(worker)
        if self._stopped:
            self._stopped = False
            self.recorder.desktops.swap(DesktopState.SYNC_WAIT, DesktopState.GENERATING)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
