"""Weight synchronization: how the workers of a pool load new weights.

A sync has a scope (rolling, k workers at a time, or global) and a mode (what happens to requests running on the worker:
drained, kept, or killed by a restart). DART as released does a rolling restart of two workers at a time; the coupled
baseline changes all workers at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, cast

from dartsim.config.sections.rollout import SyncConfig
from dartsim.core.answers import text_of
from dartsim.core.errors import WorkerFault, cause_of
from dartsim.core.ports import LentWorker
from dartsim.core.sync_modes import SyncMode
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Version, Weights
from dartsim.observe import EngineState, Recorder
from dartsim.rollout.turns import WorkerSlot

logger = logging.getLogger(__name__)


class LoadTimedOut(WorkerFault):
    """A worker did not load weights in time; the version that it serves is unknown."""

    cause = "load_timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"weights were not loaded within {seconds:g} s (rollout.limits.load_seconds)")


RETRY_SECONDS = 5.0
"""Wait after a failed load, doubled each time, up to 16-fold; also before retrying a worker that failed to return."""

TRIES = 3
"""Number of loads for which other workers wait; afterwards the worker retries on its own."""


class Pool(Protocol):
    """What a weight sync needs from the pool."""

    workers: list[WorkerSlot]
    recorder: Recorder

    def take_down(self, worker: WorkerSlot) -> None:
        """Send the worker no new requests; its live ones continue."""
        ...

    def stop(self, worker: WorkerSlot) -> None:
        """Record that the worker stops serving, its live requests included."""
        ...

    def bring_up(self, worker: WorkerSlot) -> None:
        """Record that the worker serves again."""
        ...


class WeightSync:
    """Loads the newest publication into every worker, one slice after the other.

    A publication during a sync supersedes it: later slices load the newer weights, and earlier ones are visited
    again. Loads of one worker never overlap. A worker that is down, or whose loads keep failing, is taken out of
    rotation, so that the others do not wait for it; its next load is a restart, which ends the requests kept in it.
    Weights that failed to load somewhere and were loaded nowhere may be torn, so they are never loaded into the last
    workers that serve.
    """

    def __init__(self, service: Pool, config: SyncConfig, load_seconds: float, weights: Weights) -> None:
        self._service = service
        self._config = config
        self._mode = config.sync_mode
        self._load_seconds = load_seconds
        self._target = weights
        self.since = service.recorder.clock()
        """When it began to wait or to sync, loop time."""
        self._published = asyncio.Event()
        self._progress = asyncio.Condition()
        self._failing_workers = 0  # workers whose loads keep failing
        self._newest_failed: Version = -1  # newest version that could not be loaded somewhere
        self._torn = False  # whether a sync waits because its weights may be torn

    def publish(self, weights: Weights) -> None:
        """Make these weights the target, unless the current target is newer."""
        if weights.version <= self._target.version:
            return
        self._target = weights
        self.since = self._service.recorder.clock()
        self._published.set()

    @property
    def target(self) -> Version:
        """The version that every worker has to load."""
        return self._target.version

    async def retry_missed(self) -> None:
        """Load the target into workers that missed it while they were down."""
        self._published.set()
        await self._notify()

    async def settled(self, version: Version) -> None:
        """Wait until every worker in rotation, and at least one, serves ``version`` or a newer one.

        Returns early if that version failed to load somewhere and no worker has it: it may be torn, and only the caller
        can produce a newer one.
        """
        async with self._progress:
            await self._progress.wait_for(lambda: self._has_settled(version))

    def _has_settled(self, version: Version) -> bool:
        if self._torn and self._newest_failed >= version:
            return True
        serving = [worker.version >= version for worker in self._service.workers if not worker.out_of_rotation]
        return bool(serving) and all(serving)

    async def run(self, returns: asyncio.TaskGroup) -> None:
        """Sync each publication until cancelled; ``returns`` holds the tasks of workers that are out of rotation."""
        while True:
            await self._published.wait()
            self._published.clear()
            await self._synchronize(returns)

    async def _synchronize(self, returns: asyncio.TaskGroup) -> None:
        counts, workers = self._service.recorder.counts, self._service.workers
        while behind := [w for w in workers if w.version < self._target.version and not w.out_of_rotation]:
            counts["syncs"] += 1
            size = len(behind) if self._config.workers_at_a_time == "all" else self._config.workers_at_a_time
            for start in range(0, len(behind), size):
                await self._change(behind[start : start + size], returns)
        self.since = self._service.recorder.clock()

    async def _change(self, members: Sequence[WorkerSlot], returns: asyncio.TaskGroup) -> None:
        """Load the newest weights into one slice."""
        if len(members) > 1 and not self._keeps_pool_serving(members):
            for worker in members:  # one loads first while the rest serve; together they would wait forever
                await self._change([worker], returns)
            return
        async with self._progress:
            while not self._keeps_pool_serving(members):
                if not self._torn:
                    self._torn = True
                    self._progress.notify_all()
                await self._progress.wait()
            self._torn = False
        async with asyncio.TaskGroup() as slice_tasks:
            for worker in members:
                slice_tasks.create_task(self._refresh(worker, returns))

    def _keeps_pool_serving(self, members: Sequence[WorkerSlot]) -> bool:
        """Return whether the pool still serves if these workers cannot load the newest weights either."""
        workers = self._service.workers
        proven = any(worker.version >= self._target.version for worker in workers)
        return proven or not self._failing_workers or any(w.routable and w not in members for w in workers)

    async def _refresh(self, worker: WorkerSlot, returns: asyncio.TaskGroup) -> None:
        """Take a worker down, load the newest weights, and bring it up; take it out of rotation if loads fail."""
        service, mode = self._service, self._mode
        if worker.out_of_rotation:
            return  # it went down after the slices were formed
        await self.take_down(worker)
        service.stop(worker)
        number = 1
        while fault := await self._load(worker, mode):
            if fault.back is not None or number == TRIES:
                worker.out_of_rotation = True
                self._failing_workers += fault.back is None
                returns.create_task(self._retry_load(worker, number, failing=fault.back is None))
                break
            await self._wait(worker, number)
            number += 1
        await self._notify()

    async def take_down(self, worker: WorkerSlot) -> None:
        """Send a worker no new requests; wait for its live ones if the mode drains."""
        self._service.take_down(worker)
        if self._mode.drains and worker.in_flight:
            worker.drained = asyncio.get_running_loop().create_future()
            await worker.drained
            worker.drained = None

    async def bring_in(self, worker: WorkerSlot) -> None:
        """Load the newest weights into a worker that is out of rotation, and return it, however many tries it takes."""
        if await self._load(worker, self._mode):
            await self._retry_load(worker, 1, failing=False)
        else:
            worker.out_of_rotation = False
            await self._notify()  # the weights are whole

    async def release(self, worker: WorkerSlot) -> None:
        """Have an engine give its GPU back."""
        service = self._service
        try:
            with TimeLimit(self._load_seconds):
                await cast(LentWorker, worker.engine).release()
        except (WorkerFault, TimeoutError) as fault:
            logger.warning("worker %d may still hold its GPU: %s", worker.index, text_of(fault) or "it did not answer")
            service.recorder.counts["fault/release"] += 1
            service.recorder.engine_failed(worker.index, text_of(fault))

    async def _retry_load(self, worker: WorkerSlot, number: int, *, failing: bool) -> None:
        """Retry loads of a worker that is out of rotation until one succeeds."""
        # This may take long, so a restart ends the requests kept in it, and they are retried elsewhere.
        mode = SyncMode.RESTART if self._mode.keeps_requests else self._mode
        await self._wait(worker, number)
        while await self._load(worker, mode):
            await self._notify()  # the weights that it tried may be torn as well
            number += 1
            await self._wait(worker, number)
        worker.out_of_rotation = False
        self._failing_workers -= failing
        await self.retry_missed()

    async def _load(self, worker: WorkerSlot, mode: SyncMode) -> WorkerFault | None:
        """Try to load and serve the newest weights; return the fault, or None on success."""
        weights = self._target
        try:
            with TimeLimit(self._load_seconds):
                await worker.engine.load(weights, mode)
        except (WorkerFault, TimeoutError) as error:
            fault = error if isinstance(error, WorkerFault) else LoadTimedOut(self._load_seconds)
            logger.warning("worker %d, version %d: %s", worker.index, weights.version, fault)
            counts = self._service.recorder.counts
            counts["fault/load"] += 1
            counts[f"load_cause/{cause_of(fault)}"] += 1
            self._service.recorder.engine_failed(worker.index, text_of(fault))
            worker.track.enter(EngineState.DOWN)
            if fault.back is None:
                self._newest_failed = max(self._newest_failed, weights.version)
            return fault
        worker.version = weights.version
        self._service.bring_up(worker)
        return None

    async def _wait(self, worker: WorkerSlot, number: int) -> None:
        """Wait before another try; ``number`` tries (from 1) have failed."""
        await asyncio.sleep(RETRY_SECONDS * 2 ** min(number - 1, 4))
        worker.track.enter(EngineState.LOADING)

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()
