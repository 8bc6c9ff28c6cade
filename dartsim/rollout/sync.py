"""Weight synchronisation: how the workers of a pool come to new weights.

A plan has a scope (rolling slices of k workers, or all at once) and a mode (what happens to requests that
are running on the worker: drained, kept, or killed by a restart). DART as released is a rolling restart of
two workers at a time; the coupled baseline changes all workers at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dartsim.core.errors import WorkerFault, cause_of
from dartsim.core.ports import SyncMode
from dartsim.core.types import Version, Weights
from dartsim.observe import EngineState, Recorder
from dartsim.rollout.slots import WorkerSlot

logger = logging.getLogger(__name__)


class LoadTimedOut(WorkerFault):
    """A worker did not take weights in time; what it serves is not known."""

    cause = "load_timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"weights were not loaded within {seconds:g} s (rollout.limits.load_seconds)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """How weights are changed.

    Attributes:
        mode: What happens to requests that are running on a worker.
        workers_at_a_time: Size of a slice; None changes all workers at once.
        retry_seconds: Wait before another try after a failed load; doubled each time, up to 16-fold.
        tries: Loads of a worker that the ones after it wait for, if it is not down; it then goes on by itself.
        load_seconds: Longest time of one load; one that takes longer has failed.
    """

    mode: SyncMode = SyncMode.DRAIN
    workers_at_a_time: int | None = 1
    retry_seconds: float = 5.0
    tries: int = 3
    load_seconds: float = 1200.0


class Pool(Protocol):
    """What a synchronisation asks of the pool whose workers it changes."""

    workers: list[WorkerSlot]
    recorder: Recorder

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
    weights at once, and the others are visited again. No two loads of a worker ever overlap. A worker that is
    down, or whose loads keep failing, is set apart, so that the others do not stay behind for its sake. But
    weights that failed somewhere and were loaded nowhere never take the last workers that serve: they may be torn.
    Requests that are kept in a worker that is set apart end with its next load, which is a restart.
    """

    def __init__(self, service: Pool, plan: SyncPlan, weights: Weights) -> None:
        self._service = service
        self._plan = plan
        self._target = weights
        self.since = service.recorder.clock()
        """When it began to wait, or to change weights; loop time."""
        self._published = asyncio.Event()
        self._settled = asyncio.Condition()
        self._refusing = 0  # workers whose loads keep failing
        self._refused: Version = -1  # newest version that could not be loaded somewhere
        self._held = False  # whether a change waits, since what it would load may be torn

    def publish(self, weights: Weights) -> None:
        """Make these the target; older ones than the present target are ignored."""
        if weights.version <= self._target.version:
            return
        self._target = weights
        self.since = self._service.recorder.clock()
        self._published.set()

    @property
    def target(self) -> Version:
        """The version that every worker has to end on."""
        return self._target.version

    async def look_again(self) -> None:
        """Visit workers that missed a publication, now that they can be visited."""
        self._published.set()
        await self._tell()

    async def settled(self, version: Version) -> None:
        """Wait until every worker that is not set apart serves ``version`` or a newer one, and one at least.

        Or until the change is held back, because workers refused that version and nobody has loaded it: it may be torn
        for good, and only whoever waits here can make a newer one.
        """
        async with self._settled:
            await self._settled.wait_for(lambda: self._has_settled(version))

    def _has_settled(self, version: Version) -> bool:
        if self._held and self._refused >= version:
            return True
        serving = [worker.version >= version for worker in self._service.workers if not worker.apart]
        return bool(serving) and all(serving)

    async def run(self, returns: asyncio.TaskGroup) -> None:
        """Serve publications until cancelled; ``returns`` holds the tasks of workers that are set apart."""
        while True:
            await self._published.wait()
            self._published.clear()
            await self._synchronise(returns)

    async def _synchronise(self, returns: asyncio.TaskGroup) -> None:
        counts = self._service.recorder.counts
        while behind := [w for w in self._service.workers if w.version < self._target.version and not w.apart]:
            counts["syncs"] += 1
            size = self._plan.workers_at_a_time or len(behind)
            for start in range(0, len(behind), size):
                await self._change(behind[start : start + size], returns)
        self.since = self._service.recorder.clock()

    async def _change(self, members: Sequence[WorkerSlot], returns: asyncio.TaskGroup) -> None:
        """Bring one slice to the newest weights."""
        if len(members) > 1 and not self._may_take(members):
            for worker in members:  # one goes first while the rest serve: together they would wait forever
                await self._change([worker], returns)
            return
        async with self._settled:
            while not self._may_take(members):
                if not self._held:
                    self._held = True
                    self._settled.notify_all()
                await self._settled.wait()
            self._held = False
        async with asyncio.TaskGroup() as slice_tasks:
            for worker in members:
                slice_tasks.create_task(self._refresh(worker, returns))

    def _may_take(self, members: Sequence[WorkerSlot]) -> bool:
        """Whether the pool goes on to serve if the newest weights cannot be loaded by these either."""
        workers = self._service.workers
        proven = any(worker.version >= self._target.version for worker in workers)
        return proven or not self._refusing or any(w.routable and w not in members for w in workers)

    async def _refresh(self, worker: WorkerSlot, returns: asyncio.TaskGroup) -> None:
        """Take one worker out, load the newest weights, and bring it back; or set it apart if it takes none."""
        service, mode = self._service, self._plan.mode
        if worker.apart:
            return  # went down since the slices were made
        service.take_down(worker)
        if mode is SyncMode.DRAIN and worker.in_flight:
            worker.drained = asyncio.get_running_loop().create_future()
            await worker.drained
            worker.drained = None
        service.stop(worker)
        number = 1
        while fault := await self._load(worker, mode):
            if fault.back is not None or number == self._plan.tries:
                worker.apart = True
                self._refusing += fault.back is None
                returns.create_task(self._load_apart(worker, number, refusing=fault.back is None))
                break
            await self._wait(worker, number)
            number += 1
        await self._tell()  # that it serves them, or that nobody waits for it any longer

    async def _load_apart(self, worker: WorkerSlot, number: int, *, refusing: bool) -> None:
        """Go on with a worker that nobody waits for, until it has weights again."""
        # That may take long: a restart ends requests that are kept in it, and they are asked elsewhere.
        mode = SyncMode.RESTART if self._plan.mode is SyncMode.KEEP else self._plan.mode
        await self._wait(worker, number)
        while await self._load(worker, mode):
            await self._tell()  # what was newest then may be torn as well
            number += 1
            await self._wait(worker, number)
        worker.apart = False
        self._refusing -= refusing
        await self.look_again()

    async def _load(self, worker: WorkerSlot, mode: SyncMode) -> WorkerFault | None:
        """Try to load what is newest now, and serve it; return why it could not be loaded."""
        weights = self._target
        try:
            async with asyncio.timeout(self._plan.load_seconds):
                await worker.engine.load(weights, mode)
        except (WorkerFault, TimeoutError) as error:
            fault = error if isinstance(error, WorkerFault) else LoadTimedOut(self._plan.load_seconds)
            logger.warning("worker %d, version %d: %s", worker.index, weights.version, fault)
            counts = self._service.recorder.counts
            counts["fault/load"] += 1
            counts[f"load_cause/{cause_of(fault)}"] += 1
            worker.track.enter(EngineState.DOWN)
            if fault.back is None:
                self._refused = max(self._refused, weights.version)
            return fault
        worker.version = weights.version
        self._service.bring_up(worker)
        return None

    async def _wait(self, worker: WorkerSlot, number: int) -> None:
        """Wait before another try, the longer the more came before (from 1)."""
        await asyncio.sleep(self._plan.retry_seconds * 2 ** min(number - 1, 4))
        worker.track.enter(EngineState.LOADING)

    async def _tell(self) -> None:
        async with self._settled:
            self._settled.notify_all()
