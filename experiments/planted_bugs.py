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
from dartsim.curation.admission import SlotGroup
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.eligibility import StalenessRule
from dartsim.curation.manager import DataManager
from dartsim.curation.open_groups import OpenGroup
from dartsim.curation.ready_groups import ReadyGroups
from dartsim.rollout import actors
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.deadlines import Lane
from dartsim.rollout.lockstep import LockstepSession
from dartsim.rollout.revert import RevertingDesktop
from dartsim.rollout.routing import Router
from dartsim.rollout.service import RolloutService
from dartsim.rollout.sync import WeightSync
from dartsim.rollout.turns import PoolSession
from dartsim.run import resume_point
from dartsim.store.sql import SqlStore
from dartsim.store.transactions import Writer
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
    """A group becomes eligible, and the trainer that waits is not told."""
    if self._closed:
        old(self)


@_planted("told one of many", RolloutService, "bring_up")
def _(old: Any, self: RolloutService, worker: Any) -> None:
    """Of the requests that wait for a stopped pool, one is told that it is up again."""
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


@_planted("state left behind", RevertingDesktop, "_resumed")
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
    """The error of an attempt that broke is swallowed, and nobody hears of its end."""
    if trajectory.ending is not Ending.BROKEN:
        old(self, trajectory)


@_planted("unbounded queue", AttemptLedger, "ahead")
def _(old: Any, self: AttemptLedger) -> int:
    """Attempts that run do not count against the bound on what is ahead."""
    return int(old(self) - len(self.running))


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
def _(old: Any, self: WeightSync, service: Any, plan: Any, weights: Any) -> None:
    """A rolling change of weights takes all workers at once."""
    old(self, service, replace(plan, workers_at_a_time=None), weights)


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
    self._pending.change(attempts, TrajectoryState.TRAINED, update=batch.update)


@_planted("rows before state", SqlStore, "settle")
def _(old: Any, self: SqlStore, source: Any, *, now: bool = False) -> None:
    """Rows are written first, and the scheduler's state in another transaction after them."""
    if not self._suspended and (now or self._due or self._each):
        due = self._due
        self.flush()
        self._due = due
    old(self, source, now=now)


@_planted("late state", SqlStore, "_keep_documents")
def _(old: Any, self: SqlStore, documents: Any) -> None:
    """The scheduler's state that is written is that of the transaction before."""
    if "scheduler" in documents:
        held = vars(self)
        held["before"], documents = documents, held.get("before", documents)
    old(self, documents)


@_planted("forgotten transaction", Writer, "write")
def _(old: Any, self: Writer, steps: Any) -> None:
    """A transaction that the database refused is forgotten."""
    try:
        old(self, steps)
    except StoreFault:
        self._line.clear()


@_planted("forgotten attempts", DataManager, "_interrupt")
def _(old: Any, self: DataManager, attempt: Any) -> None:
    """Attempts that ran when the process died are forgotten by the scheduler."""
    self.ledger.admitted -= 1


@_planted("lost batch", resume_point, "_members")
def _(old: Any, scheduler: Any) -> Any:
    """The batch that was leased when the process died is not eligible again."""
    scheduler["leased"] = []
    return old(scheduler)
