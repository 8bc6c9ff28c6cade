"""Planted bugs: each breaks one rule of the production code while its ``with`` block runs. The search must find them.

They are the classic bugs of such systems: they fail rarely, far from their cause, and silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
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
from dartsim.rollout.service import PoolSession, RolloutService
from dartsim.rollout.sync import WeightSync
from dartsim.run import resume_point
from dartsim.store.sql import SqlStore
from dartsim.store.transactions import Writer
from dartsim.trainer import Trainer

Make = Callable[[Any], Any]
"""Returns the replacement of an attribute."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug that can be planted.

    Attributes:
        text: What is wrong, in words.
        apply: Plants it, for a ``with`` block.
    """

    text: str
    apply: Callable[[], AbstractContextManager[None]]


@contextmanager
def _patched(owner: Any, name: str, make: Make) -> Iterator[None]:
    old = owner.__dict__[name]
    setattr(owner, name, make(old))
    try:
        yield
    finally:
        setattr(owner, name, old)


def _planted(owner: Any, name: str, text: str) -> Callable[[Make], PlantedBug]:
    def plant(make: Make) -> PlantedBug:
        return PlantedBug(text, partial(_patched, owner, name, make))

    return plant


@_planted(DataManager, "_wake_trainer", "a group becomes eligible, and the trainer that waits is not told")
def _lost_wake_up(old: Any) -> Any:
    def wake(self: DataManager) -> None:
        if self._closed:
            old(self)

    return wake


@_planted(RolloutService, "bring_up", "of the requests that wait for a stopped pool, one is told that it is up again")
def _told_one(old: Any) -> Any:
    def bring_up(self: RolloutService, worker: Any) -> None:
        waiting = list(self._waiting)[1:]
        self._waiting = type(self._waiting)(list(self._waiting)[:1])
        old(self, worker)
        self._waiting.extend(waiting)

    return bring_up


@_planted(ReadyGroups, "lease", "a leased group stays eligible and is leased again")
def _double_lease(old: Any) -> Any:
    def lease(self: ReadyGroups, groups: Any) -> Any:
        batch = old(self, groups)
        self.groups[:0] = groups
        return batch

    return lease


@_planted(WeightSync, "_load", "a worker counts as newest after a load, though newer weights came during it")
def _version_skew(old: Any) -> Any:
    async def load(self: WeightSync, worker: Any, mode: Any) -> Any:
        fault = await old(self, worker, mode)
        if fault is None:
            worker.version = self._target.version
        return fault

    return load


@_planted(DataManager, "finish", "a masked attempt is not tried again, and its group waits for it")
def _missing_requeue(old: Any) -> Any:
    def finish(self: DataManager, trajectory: Trajectory) -> None:
        start = DataManager.__dict__["_start_attempts"]

        def forget(self: DataManager) -> None:
            self.open_groups._replace.clear()
            start(self)

        with _patched(DataManager, "_start_attempts", lambda _: forget):
            old(self, trajectory)

    return finish


@_planted(Trainer, "_train", "a batch is marked as trained before its update")
def _marked_first(old: Any) -> Any:
    async def train(self: Trainer, batch: Any) -> None:
        self._source.trained(batch, UpdateResult(Weights(batch.update)))
        await old(self, batch)

    return train


@_planted(WeightSync, "run", "each publication loads by itself, beside loads that are under way")
def _reload_overlap(old: Any) -> Any:
    async def run(self: WeightSync, returns: asyncio.TaskGroup) -> None:
        while True:
            await self._published.wait()
            self._published.clear()
            returns.create_task(self._synchronize(returns))

    return run


@_planted(DataManager, "finish", "the error of an attempt that broke is swallowed, and nobody hears of its end")
def _dropped_exception(old: Any) -> Any:
    def finish(self: DataManager, trajectory: Trajectory) -> None:
        if trajectory.ending is not Ending.BROKEN:
            old(self, trajectory)

    return finish


@_planted(AttemptLedger, "ahead", "attempts that run do not count against the bound on what is ahead")
def _unbounded_queue(old: Any) -> Any:
    return property(lambda self: old.fget(self) - len(self.running))


@_planted(OpenGroup, "complete", "a group is closed before its replacements have ended, and again after")
def _group_closed_early(old: Any) -> Any:
    return property(lambda self: self.finished >= self.size)


@_planted(DataManager, "_drop_stale", "staleness is looked at nowhere once a group is eligible")
def _stale_admission(old: Any) -> Any:
    return DataManager.__dict__["_start_attempts"]


@_planted(StalenessRule, "fresh", "staleness is one version more lenient than its bound")
def _off_by_one(old: Any) -> Any:
    def fresh(self: StalenessRule, trajectory: Trajectory, version: int) -> bool:
        return bool(old(self, trajectory, version - 1))

    return fresh


@_planted(actors, "play", "a desktop that broke is a reward of 0")
def _reward_for_a_fault(old: Any) -> Any:
    async def play(*args: Any, **options: Any) -> Trajectory:
        trajectory: Trajectory = await old(*args, **options)
        if trajectory.ending is Ending.BROKEN:
            return replace(trajectory, ending=Ending.FAIL, reward=0.0, cause=None)
        return trajectory

    return play


@_planted(RolloutService, "end", "a request that ends on a worker which was taken down is not counted off")
def _leaked_permit(old: Any) -> Any:
    def end(self: RolloutService, worker: Any) -> None:
        if worker.routable:
            old(self, worker)

    return end


@_planted(EnvCluster, "_close", "the desktop of an attempt that ran into a deadline is left behind")
def _leaked_desktop(old: Any) -> Any:
    async def close(self: EnvCluster, env: Any, track: Any) -> None:
        if self._recorder.counts["cause/step timed out"] == 0:
            await old(self, env, track)

    return close


@_planted(PoolSession, "generate", "a turn that takes long is asked again elsewhere, the first request still running")
def _retry_beside(old: Any) -> Any:
    async def generate(self: PoolSession, request: Any) -> Any:
        first = asyncio.ensure_future(old(self, request))
        done, _ = await asyncio.wait([first], timeout=30.0)
        return first.result() if done else await old(self, request)

    return generate


@_planted(Lane, "begin", "actions on a desktop have no deadline")
def _lost_deadline(old: Any) -> Any:
    def begin(self: Lane) -> None:
        if self.label != "step":
            old(self)

    return begin


@_planted(WeightSync, "__init__", "a rolling change of weights takes all workers at once")
def _all_at_once(old: Any) -> Any:
    def make(self: WeightSync, service: Any, config: Any, *rest: Any) -> None:
        old(self, service, config.replace(workers_at_a_time="all"), *rest)

    return make


@_planted(SlotGroup, "end", "the slots of a sampling unit wait for one attempt more than they have")
def _unit_never_opens(old: Any) -> Any:
    def end(self: SlotGroup) -> None:
        self.running -= 1
        self.open = self.running < 0

    return end


@_planted(WeightSync, "publish", "a publication that arrives late replaces a newer one")
def _late_publication(old: Any) -> Any:
    def publish(self: WeightSync, weights: Weights) -> None:
        self._target = weights
        self._published.set()
        for worker in self._service.workers:
            worker.version = min(worker.version, weights.version - 1)

    return publish


@_planted(LockstepSession, "close", "the other desktops of a lock-step turn wait for an attempt that has ended")
def _turn_of_the_dead(old: Any) -> Any:
    def close(self: LockstepSession) -> None:
        self._inner.close()

    return close


@_planted(RolloutService, "take_down", "a worker that is about to load weights still gets requests")
def _not_taken_down(old: Any) -> Any:
    def take_down(self: RolloutService, worker: Any) -> None:
        old(self, worker)
        self.router.add(worker)

    return take_down


# -- of what outlives the process: found only where it is killed, or its store fails


@_planted(SqlStore, "lease", "a batch is written as trained when it is taken, before its update is committed")
def _trained_before_commit(old: Any) -> Any:
    def lease(self: SqlStore, batch: Any) -> None:
        old(self, batch)
        attempts = [trajectory.attempt.id for trajectory in batch.trajectories]
        self._pending.change(attempts, TrajectoryState.TRAINED, update=batch.update)

    return lease


@_planted(SqlStore, "settle", "rows are written first, and the scheduler's state in another transaction after them")
def _rows_before_state(old: Any) -> Any:
    def settle(self: SqlStore, source: Any, *, now: bool = False) -> None:
        if not self._suspended and (now or self._due or self._each):
            due = self._due
            self.flush()
            self._due = due
        old(self, source, now=now)

    return settle


@_planted(SqlStore, "_keep_documents", "the scheduler's state that is written is that of the transaction before")
def _late_state(old: Any) -> Any:
    def keep(self: SqlStore, documents: Any) -> None:
        if "scheduler" in documents:
            held = vars(self)
            held["before"], documents = documents, held.get("before", documents)
        old(self, documents)

    return keep


@_planted(Writer, "write", "a transaction that the database refused is forgotten")
def _forgotten_transaction(old: Any) -> Any:
    def write(self: Writer, steps: Any) -> None:
        try:
            old(self, steps)
        except StoreFault:
            self._line.clear()

    return write


@_planted(DataManager, "_interrupt", "attempts that ran when the process died are forgotten by the scheduler")
def _forgotten_attempts(old: Any) -> Any:
    def interrupt(self: DataManager, attempt: Any) -> None:
        self.ledger.admitted -= 1

    return interrupt


@_planted(resume_point, "_members", "the batch that was leased when the process died is not eligible again")
def _lost_batch(old: Any) -> Any:
    def members(scheduler: Any) -> Any:
        scheduler["leased"] = []
        return old(scheduler)

    return members


MUTATIONS: Mapping[str, PlantedBug] = {
    "lost wake-up": _lost_wake_up,
    "told one of many": _told_one,
    "double lease": _double_lease,
    "version skew": _version_skew,
    "missing requeue": _missing_requeue,
    "marked as trained first": _marked_first,
    "reload overlap": _reload_overlap,
    "dropped exception": _dropped_exception,
    "unbounded queue": _unbounded_queue,
    "group closed early": _group_closed_early,
    "stale admission": _stale_admission,
    "staleness off by one": _off_by_one,
    "reward for a fault": _reward_for_a_fault,
    "leaked permit": _leaked_permit,
    "leaked desktop": _leaked_desktop,
    "retry beside": _retry_beside,
    "lost deadline": _lost_deadline,
    "all workers at once": _all_at_once,
    "unit never opens": _unit_never_opens,
    "late publication": _late_publication,
    "turn of the dead": _turn_of_the_dead,
    "not taken down": _not_taken_down,
    "trained before commit": _trained_before_commit,
    "rows before state": _rows_before_state,
    "late state": _late_state,
    "forgotten transaction": _forgotten_transaction,
    "forgotten attempts": _forgotten_attempts,
    "lost batch": _lost_batch,
}
"""Every planted bug by name."""
