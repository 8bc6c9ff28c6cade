"""Planted bugs: each breaks one rule of the production code while its ``with`` block runs. The search must find them.

They are the classic bugs of such systems: they fail rarely, far from their cause, and silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from dartsim.core.errors import StoreFault
from dartsim.core.types import Ending, Trajectory, TrajectoryState, UpdateResult, Weights
from dartsim.curation.admission import AdmissionControl, SlotGroup
from dartsim.curation.eligibility import StalenessRule
from dartsim.curation.manager import DataManager
from dartsim.curation.open_groups import OpenGroup, OpenGroups
from dartsim.curation.ready_groups import ReadyGroups
from dartsim.curation.rules.attempts import AttemptsBySuccess
from dartsim.curation.success_pool import SuccessPool
from dartsim.rollout import actors
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.deadlines import Lane
from dartsim.rollout.lockstep import LockstepSession
from dartsim.rollout.revert import RevertingDesktop
from dartsim.rollout.routing import Router
from dartsim.rollout.service import RolloutService
from dartsim.rollout.snapshot_library import SnapshotLibrary
from dartsim.rollout.sync import WeightSync
from dartsim.rollout.turns import PoolSession
from dartsim.rollout.warm import LentDesktop, WarmProvider
from dartsim.run import resume_point
from dartsim.run.held_out_attempts import HeldOutAttempts
from dartsim.store.sql import SqlStore
from dartsim.trainer import Trainer


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug that can be planted."""

    text: str
    apply: Callable[[], AbstractContextManager[None]]


MUTATIONS: dict[str, PlantedBug] = {}
"""Every planted bug by name."""


def _planted(bug: str, owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Make a function stand in for a function or property of ``owner``: it gets the old one, then the arguments."""

    @contextmanager
    def apply(wrong: Callable[..., Any]) -> Iterator[None]:
        old = owner.__dict__[name]
        if not isinstance(old, FunctionType | property):
            raise TypeError(f"{name} is compiled and cannot be replaced: set DARTSIM_PURE_PYTHON=1")
        if isinstance(old, property):
            setattr(owner, name, property(lambda self: wrong(old.fget, self)))
        else:
            setattr(owner, name, lambda *args, **options: wrong(old, *args, **options))
        try:
            yield
        finally:
            setattr(owner, name, old)

    def plant(wrong: Callable[..., Any]) -> None:
        text = str(wrong.__doc__).rstrip(".")
        MUTATIONS[bug] = PlantedBug(text[0].lower() + text[1:], lambda: apply(wrong))

    return plant


@_planted("lost wake-up", DataManager, "_wake_trainer")
def _(old: Any, self: DataManager) -> None:
    """A group becomes eligible, and the waiting trainer is not notified."""
    if self._closed:
        old(self)


@_planted("told one of many", RolloutService, "bring_up")
def _(old: Any, self: RolloutService, worker: Any) -> None:
    """Only one of the requests that wait for a stopped pool is notified that it is up again."""
    waiting = list(self._waiting)[1:]
    self._waiting = type(self._waiting)(list(self._waiting)[:1])
    old(self, worker)
    self._waiting.extend(waiting)


@_planted("double lease", ReadyGroups, "lease")
def _(old: Any, self: ReadyGroups, groups: Any) -> Any:
    """A leased group stays eligible and is leased again."""
    batch = old(self, groups)
    self.groups[:0] = groups
    return batch


@_planted("version skew", WeightSync, "_load")
async def _(old: Any, self: WeightSync, worker: Any, mode: Any) -> Any:
    """A worker counts as newest after a load, though newer weights came during it."""
    fault = await old(self, worker, mode)
    if fault is None:
        worker.version = self._target.version
    return fault


@_planted("state left behind", RevertingDesktop, "_begin_restored")
async def _(old: Any, self: RevertingDesktop, library: Any, state: Any, task: Any, seed: int) -> Any:
    """An attempt begins on what the last one left, in place of its task's saved state."""
    return await self._set_up(task, seed)


@_planted("missing requeue", DataManager, "finish")
def _(old: Any, self: DataManager, trajectory: Trajectory) -> None:
    """A masked attempt is not tried again, and its group waits for it."""
    start = DataManager.__dict__["_start_attempts"]

    def forget(self: DataManager) -> None:
        self.open_groups._replace.clear()
        start(self)

    DataManager._start_attempts = forget  # type: ignore[method-assign]
    try:
        old(self, trajectory)
    finally:
        DataManager._start_attempts = start  # type: ignore[method-assign]


@_planted("marked as trained first", Trainer, "_train")
async def _(old: Any, self: Trainer, batch: Any) -> None:
    """A batch is marked as trained before its update."""
    self._source.trained(batch, UpdateResult(Weights(batch.update)))
    await old(self, batch)


@_planted("reload overlap", WeightSync, "run")
async def _(old: Any, self: WeightSync, returns: asyncio.TaskGroup) -> None:
    """Each publication loads by itself, beside loads that are under way."""
    while True:
        await self._published.wait()
        self._published.clear()
        returns.create_task(self._synchronize(returns))


@_planted("dropped exception", DataManager, "finish")
def _(old: Any, self: DataManager, trajectory: Trajectory) -> None:
    """The error of a broken attempt is swallowed, and its end is never reported."""
    if trajectory.ending is not Ending.BROKEN:
        old(self, trajectory)


@_planted("unbounded queue", AdmissionControl, "_counts")
def _(old: Any, self: AdmissionControl) -> Any:
    """Groups that run do not count against the bounds on groups."""
    return old(self)._replace(open=0)


@_planted("group closed early", OpenGroup, "complete")
def _(old: Any, self: OpenGroup) -> bool:
    """A group is closed before its replacements have ended, and again after."""
    return self.finished >= self.size


@_planted("stale admission", DataManager, "_drop_stale")
def _(old: Any, self: DataManager) -> None:
    """Staleness is looked at nowhere once a group is eligible."""
    self._start_attempts()


@_planted("staleness off by one", StalenessRule, "fresh")
def _(old: Any, self: StalenessRule, trajectory: Trajectory, version: int) -> bool:
    """Staleness is one version more lenient than its bound."""
    return bool(old(self, trajectory, version - 1))


@_planted("reward for a fault", actors, "play")
async def _(old: Any, *args: Any, **options: Any) -> Trajectory:
    """A desktop that broke is a reward of 0."""
    trajectory: Trajectory = await old(*args, **options)
    if trajectory.ending is Ending.BROKEN:
        return replace(trajectory, ending=Ending.FAIL, reward=0.0, cause=None)
    return trajectory


@_planted("leaked permit", Router, "end")
def _(old: Any, self: Router, worker: Any) -> None:
    """A request that ends on a worker which was taken down is not counted off."""
    if worker.routable:
        old(self, worker)


@_planted("leaked desktop", EnvCluster, "_close")
async def _(old: Any, self: EnvCluster, env: Any, track: Any) -> None:
    """The desktop of an attempt that ran into a deadline is left behind."""
    if self._recorder.counts["cause/step timed out"] == 0:
        await old(self, env, track)


@_planted("retry beside", PoolSession, "generate")
async def _(old: Any, self: PoolSession, request: Any) -> Any:
    """A turn that takes long is asked again elsewhere, the first request still running."""
    first = asyncio.ensure_future(old(self, request))
    done, _ = await asyncio.wait([first], timeout=30.0)
    return first.result() if done else await old(self, request)


@_planted("lost deadline", Lane, "begin")
def _(old: Any, self: Lane) -> None:
    """Actions on a desktop have no deadline."""
    if self.label != "step":
        old(self)


@_planted("all workers at once", WeightSync, "__init__")
def _(old: Any, self: WeightSync, service: Any, config: Any, load_seconds: float, weights: Any) -> None:
    """A rolling change of weights takes all workers at once."""
    old(self, service, config.model_copy(update={"workers_at_a_time": "all"}), load_seconds, weights)


@_planted("unit never opens", SlotGroup, "end")
def _(old: Any, self: SlotGroup) -> None:
    """The slots of a sampling unit wait for one attempt more than they have."""
    self.running -= 1
    self.open = self.running < 0


@_planted("late publication", WeightSync, "publish")
def _(old: Any, self: WeightSync, weights: Weights) -> None:
    """A publication that arrives late replaces a newer one."""
    self._target = weights
    self._published.set()
    for worker in self._service.workers:
        worker.version = min(worker.version, weights.version - 1)


@_planted("turn of the dead", LockstepSession, "close")
def _(old: Any, self: LockstepSession) -> None:
    """The other desktops of a lock-step turn wait for an attempt that has ended."""
    self._inner.close()


@_planted("not taken down", RolloutService, "take_down")
def _(old: Any, self: RolloutService, worker: Any) -> None:
    """A worker that is about to load weights still gets requests."""
    old(self, worker)
    self.router.add(worker)


@_planted("trained before commit", SqlStore, "lease")
def _(old: Any, self: SqlStore, batch: Any) -> None:
    """A batch is written as trained when it is taken, before its update is committed."""
    old(self, batch)
    attempts = [trajectory.attempt.id for trajectory in batch.trajectories]
    self._set(attempts, TrajectoryState.TRAINED, update=batch.update)


@_planted("rows before state", SqlStore, "settle")
def _(old: Any, self: SqlStore, source: Any, *, now: bool = False) -> None:
    """Rows are written first, and the scheduler's state in another transaction after them."""
    if not self._suspended and (now or self._due or self._changes >= self._max_changes):
        self._commit()
        self._due = True
    old(self, source, now=now)


@_planted("late state", SqlStore, "_save_documents")
def _(old: Any, self: SqlStore, documents: Any) -> None:
    """The scheduler's state that is written is that of the transaction before."""
    if "scheduler" in documents:
        held = vars(self)
        held["before"], documents = documents, held.get("before", documents)
    old(self, documents)


@_planted("forgotten transaction", SqlStore, "_commit")
def _(old: Any, self: SqlStore) -> None:
    """A transaction that the database refused is forgotten."""
    try:
        old(self)
    except StoreFault:
        self._suspended = False


@_planted("forgotten attempts", DataManager, "_interrupt")
def _(old: Any, self: DataManager, attempt: Any) -> None:
    """Attempts that ran when the process died are forgotten by the scheduler."""
    self.ledger.admitted -= 1


@_planted("lost batch", resume_point, "_members")
def _(old: Any, scheduler: Any) -> Any:
    """The batch that was leased when the process died is not eligible again."""
    scheduler["leased"] = []
    return old(scheduler)


@_planted("missed while down", RolloutService, "_bring_back")
async def _(old: Any, self: RolloutService, worker: Any, back: Any) -> None:
    """An engine that comes back after a crash serves what it had, until something else is published."""
    await back()
    worker.out_of_rotation = False
    self.bring_up(worker)


@_planted("one pass", WeightSync, "_synchronize")
async def _(old: Any, self: WeightSync, returns: asyncio.TaskGroup) -> None:
    """A sync that keeps requests leaves out the last worker."""
    if not self._mode.keeps_requests:
        await old(self, returns)
        return
    behind = [w for w in self._service.workers if w.version < self._target.version and not w.out_of_rotation]
    for worker in behind[:-1] or behind:
        await self._change([worker], returns)


@_planted("settled by one", WeightSync, "_has_settled")
def _(old: Any, self: WeightSync, version: int) -> bool:
    """A trainer that waits for all workers continues once the first of them has the weights."""
    return any(worker.version >= version for worker in self._service.workers)


@_planted("published first", Trainer, "_update")
async def _(old: Any, self: Trainer, batch: Any) -> UpdateResult:
    """Weights are published before their update is stored."""
    result: UpdateResult = await old(self, batch)
    self._publisher.publish(result.weights)
    return result


@_planted("used twice", SuccessPool, "rescue")
def _(old: Any, self: SuccessPool, trajectories: Any) -> Any:
    """A stored success counts twice for the group that it was added to."""
    rescue = old(self, trajectories)
    if rescue is not None:
        rescue.success.uses += 1
    return rescue


@_planted("stored twice", SuccessPool, "learn")
def _(old: Any, self: SuccessPool, trajectories: Any, *, now: float) -> None:
    """A success is stored again if the pool is full."""
    old(self, trajectories, now=now)
    if any(len(entries) > 1 for entries in self._stored.values()):
        self._known.clear()
        old(self, trajectories, now=now)


@_planted("success of another task", SuccessPool, "_choose")
def _(old: Any, self: SuccessPool, attempt: Any) -> Any:
    """A group whose task was never solved gets a stored success of another task."""
    others = [entry for entry in self.entries() if entry.trajectory.attempt.group != attempt.group]
    return old(self, attempt) or next(iter(others), None)


@_planted("pool forgotten", DataManager, "successes")
def _(old: Any, self: DataManager) -> Any:
    """The success pool is lost in a crash, except for successes that were used."""
    return [entry for entry in old(self) if entry.uses]


@_planted("rates forgotten", AttemptsBySuccess, "restore")
def _(old: Any, self: AttemptsBySuccess, state: Any) -> None:
    """A resumed run has forgotten how often tasks succeed."""


@_planted("same seeds again", OpenGroups, "restore")
def _(old: Any, self: OpenGroups, saved: Any, tasks: Any, trajectories: Any) -> None:
    """A resumed run draws the seeds of its first attempts again."""
    old(self, {**saved, "drawn": 0}, tasks, trajectories)


@_planted("seed of the group", OpenGroups, "next_attempt")
def _(old: Any, self: OpenGroups, *args: Any, **options: Any) -> Any:
    """A replacement has the seed of the attempt before it."""
    attempt = old(self, *args, **options)
    if attempt.index >= self.groups[attempt.group].size:
        self._drawn -= 1
    return attempt


@_planted("newest as oldest", PoolSession, "generate")
async def _(old: Any, self: PoolSession, request: Any) -> Any:
    """A turn is recorded with the newest version that generated it only."""
    reply = await old(self, request)
    return reply._replace(oldest_version=reply.version)


@_planted("place lost", WarmProvider, "_boot")
async def _(old: Any, self: WarmProvider, place: int) -> LentDesktop:
    """The place of a spare that did not boot is lost."""
    return LentDesktop(self, place, await self.inner.start(place))


@_planted("spare left", WarmProvider, "take_back")
def _(old: Any, self: WarmProvider, desktop: LentDesktop) -> None:
    """A desktop whose attempt was cancelled is not torn down, and its place is free."""
    task = asyncio.current_task()
    if desktop.place >= 0 and task is not None and task.cancelling():
        self._free_place(desktop.place)
        desktop.place = -1
    old(self, desktop)


@_planted("another task's state", SnapshotLibrary, "find")
async def _(old: Any, self: SnapshotLibrary, key: str) -> Any:
    """A desktop forks from the state of another task while there is none of its own."""
    others = [state for state in self._states.values() if state.settled.is_set() and state.shown is not None]
    return await old(self, key) or next(iter(others), None)


@_planted("unit opens early", SlotGroup, "end")
def _(old: Any, self: SlotGroup) -> None:
    """A sampling unit opens again while one of its attempts still runs."""
    self.running -= 1
    self.open = self.running <= 1


@_planted("evaluation trained", HeldOutAttempts, "finish")
def _(old: Any, self: HeldOutAttempts, trajectory: Trajectory) -> None:
    """A held-out attempt that succeeds becomes one of the run's own."""
    data: Any = self.source
    if trajectory.attempt.id in self._running and trajectory.reward:
        data.ledger.admitted += 1
        data.ledger.dropped += 1
        data.store.record(trajectory)
    old(self, trajectory)
