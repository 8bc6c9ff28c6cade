"""``Lender``: lends the trainer's GPUs to engines while the trainer waits for data.

published --rule--> lent: engines load the published weights and join the pool
    ^                 | enough groups are ready
    +--- updates <----+ engines leave, their requests move to others; the trainer takes the next batch
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from dartsim.core.errors import PlugInFailed
from dartsim.core.ports import BatchSource
from dartsim.core.types import Batch, Drop, UpdateResult, Version
from dartsim.observe import Recorder, TrainerState
from dartsim.rollout.lending import Cycle, LendingRule
from dartsim.rollout.service import RolloutService
from dartsim.rollout.turns import WorkerSlot


class CountedSource(BatchSource, Protocol):
    """A source of batches that says how many groups are ready for them."""

    @property
    def num_ready(self) -> int: ...

    async def enough(self, groups: int) -> None:
        """Wait until so many groups are ready, or the run ends."""
        ...


class Lender:
    """The source of batches of a trainer that lends its GPUs; implements ``dartsim.core.ports.BatchSource``.

    Invariant: a lent engine holds its GPU only during ``next_batch``, and has given it back before the batch is there.

    Args:
        source: Where batches come from.
        pool: The pool that lent engines join.
        rule: Decides.
        recorder: Records states and counts.
        batch_groups: Groups of a batch, at least.
        publish_every: Updates between two publications.
    """

    def __init__(
        self,
        source: CountedSource,
        pool: RolloutService,
        rule: LendingRule,
        recorder: Recorder,
        *,
        batch_groups: int,
        publish_every: int,
    ) -> None:
        self._source = source
        self._pool = pool
        self._rule = rule
        self._recorder = recorder
        self._batch_groups = batch_groups
        self._needed = batch_groups * publish_every
        self._due = True
        self._cycle = Cycle(0, 0, self._needed)
        """Of the cycle that runs: its waits, and its lending."""

    async def next_batch(self) -> Batch | None:
        if self._due:
            self._due = False
            await self._decide()
        lacking = max(0, self._batch_groups - self._source.num_ready)
        began = self._recorder.clock()
        batch = await self._source.next_batch()
        if lacking:
            cycle, seconds = self._cycle, self._recorder.clock() - began
            self._cycle = cycle._replace(
                waited_groups=cycle.waited_groups + lacking, waited_seconds=cycle.waited_seconds + seconds
            )
        return batch

    async def _decide(self) -> None:
        """Ask the rule, with what happened in the cycle before, and lend the GPUs if it says so."""
        cycle = self._cycle._replace(ready=self._source.num_ready)
        self._cycle = Cycle(cycle.number + 1, 0, self._needed)
        recall_at = self._rule.recall_at(cycle)
        if not isinstance(recall_at, int):
            raise PlugInFailed(f"{type(self._rule).__name__}.recall_at returned {recall_at!a:.200}, wanted a number")
        recall_at = min(recall_at, self._needed)  # more may never be ready before the next publication
        if recall_at > cycle.ready:
            self._cycle = self._cycle._replace(switch_seconds=await self._lend(recall_at))

    async def _lend(self, recall_at: int) -> float:
        """Lend the GPUs until so many groups are ready; return how long that took, both ways, seconds."""
        track, clock = self._recorder.trainer.tracks[0], self._recorder.clock
        self._recorder.counts["lendings"] += 1
        track.enter(TrainerState.LENT)
        joined = [0.0]

        async def join(worker: WorkerSlot) -> None:
            began = clock()
            await self._pool.join(worker)
            joined.append(clock() - began)

        async with asyncio.TaskGroup() as group:
            joins = [group.create_task(join(worker), name=f"lend-{worker.index}") for worker in self._pool.lent]
            await self._source.enough(recall_at)
            for task in joins:
                task.cancel()
        recalled = clock()
        async with asyncio.TaskGroup() as group:
            for worker in self._pool.lent:
                group.create_task(self._pool.leave(worker), name=f"recall-{worker.index}")
        track.enter(TrainerState.WAIT_DATA)
        return max(joined) + clock() - recalled

    def trained(self, batch: Batch, result: UpdateResult) -> None:
        self._source.trained(batch, result)

    def release(self, batch: Batch, *, drop: Drop | None = None) -> None:
        self._source.release(batch, drop=drop)

    def published(self, version: Version) -> None:
        self._source.published(version)
        self._due = True
