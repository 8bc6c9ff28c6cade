"""A trainer with faults: outages, full disks, and crashes before, during and after its commit.

An update is identified by its number. If it was committed but its acknowledgment was lost, a repeated request returns
its result; if it was not committed it did not happen, whatever was computed.
"""

from __future__ import annotations

import asyncio
from math import inf

from dartsim.core.errors import LearnerFault, UpdateUncertain
from dartsim.core.types import Batch, UpdateResult
from dartsim.sim.faults.faulty_network import FaultyNetwork
from dartsim.sim.faults.injector import LEARNER, FaultInjector, Injection
from dartsim.sim.faults.kinds import KINDS, Effect, FaultKind, Place
from dartsim.sim.learner import SimLearner

OUTAGE, FULL = KINDS["trainer_outage"], KINDS["disk_full"]


class FaultyLearner:
    """A learner with faults; implements ``dartsim.core.ports.Learner``.

    States: *up*, *down* until it has recovered from a crash, *unavailable* during an outage.
    """

    def __init__(self, inner: SimLearner, injector: FaultInjector, network: FaultyNetwork) -> None:
        self._inner = inner
        self._injector = injector
        self._network = network
        self._env = injector.env
        self._updates = injector.point((Place.UPDATE,), {})
        self._when = injector.uniform("faults/trainer/when")
        self._outages = injector.window_fault(OUTAGE.name)
        self._full = injector.window_fault(FULL.name)
        self._down_until = -inf
        self._down_by = OUTAGE
        self._unacknowledged: UpdateResult | None = None

    async def update(self, batch: Batch) -> UpdateResult:
        result: UpdateResult = await self._network.request(LEARNER, lambda: self._update(batch))
        return result

    async def _update(self, batch: Batch) -> UpdateResult:
        self._refuse_if_down(batch)
        done, self._unacknowledged = self._unacknowledged, None
        if done is not None and done.weights.version == batch.update:
            return done
        now = self._env.now
        injection = self._updates.injection(now)
        seconds = self._inner.seconds(batch)
        ends, kind = inf, OUTAGE
        if self._outages is not None:
            self._outages.is_open(now)
            ends = self._outages.begin
        if injection is not None and (lost := injection.ending(Effect.LOST)):
            crash = now + self._when() * seconds
            ends, kind = min((ends, kind), (crash, lost), key=lambda end: end[0])
        if ends < now + seconds:
            await asyncio.sleep(ends - now)
            raise self._die(batch, kind, injection)
        return await self._commit(batch, injection, seconds)

    async def _commit(self, batch: Batch, injection: Injection | None, seconds: float) -> UpdateResult:
        """Compute, write the checkpoint, and answer, unless a fault intervenes."""
        if self._full is not None and self._full.is_open(self._env.now):
            # The disk has no space for the result, which is lost.
            await asyncio.sleep(seconds)
            self._injector.count_window(FULL, self._full)
            self._injector.add_cost(FULL, seconds)
            raise FULL.error(LearnerFault, f"update {batch.update}: ")
        if injection is not None and (torn := injection.ending(Effect.TORN)):
            await asyncio.sleep(seconds)
            raise self._die(batch, torn, injection)
        began = self._env.now
        result = await self._inner.update(batch)
        await self._injector.after_call(injection, began)
        if injection is not None and (lost := injection.ending(Effect.ACK_LOST)):
            self._unacknowledged = result
            self._go_down(lost, injection.seconds)
            raise lost.error(UpdateUncertain, f"update {batch.update}: ")
        return result

    def _refuse_if_down(self, batch: Batch) -> None:
        error = UpdateUncertain if self._unacknowledged else LearnerFault
        if self._outages is not None and self._outages.is_open(self._env.now):
            self._injector.count_window(OUTAGE, self._outages)
            raise OUTAGE.error(error, f"update {batch.update}: ")
        if self._env.now < self._down_until:
            raise self._down_by.error(error, f"update {batch.update}: ")

    def _die(self, batch: Batch, kind: FaultKind, injection: Injection | None) -> LearnerFault:
        if kind is OUTAGE and self._outages is not None:
            self._outages.is_open(self._env.now)
            self._injector.count_window(OUTAGE, self._outages)
            self._injector.add_cost(OUTAGE, self._outages.end - self._env.now)
        elif injection is not None:
            self._go_down(kind, injection.seconds)
        return kind.error(LearnerFault, f"update {batch.update}: ")

    def _go_down(self, kind: FaultKind, seconds: float) -> None:
        self._down_until, self._down_by = self._env.now + seconds, kind
        self._injector.add_cost(kind, seconds)
