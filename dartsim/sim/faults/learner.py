"""A trainer that the table's faults strike: outages, full disks, and crashes before, during and after its commit.

An update is known by its number. One that was committed, but whose answer nobody heard, is answered when it is asked
for again; one that was not committed did not happen, whatever was computed.
"""

from __future__ import annotations

import asyncio
from math import inf

from dartsim.core.errors import LearnerFault, UpdateUncertain
from dartsim.core.types import Batch, UpdateResult
from dartsim.sim.faults.kinds import Effect, FaultKind, Place
from dartsim.sim.faults.messages import Network
from dartsim.sim.faults.spells import Spells
from dartsim.sim.faults.striking import CONTROL, LEARNER, Blow, Faults
from dartsim.sim.faults.table import KINDS
from dartsim.sim.learner import SimLearner

OUTAGE, FULL = KINDS["trainer_outage"], KINDS["disk_full"]


class StruckLearner:
    """A learner that faults strike; implements ``dartsim.core.ports.Learner``.

    States: *up*, *down* until a crash is recovered from, *away* during an outage.

    Args:
        inner: The learner.
        faults: What strikes.
        network: The way to it.
    """

    def __init__(self, inner: SimLearner, faults: Faults, network: Network) -> None:
        self._inner = inner
        self._faults = faults
        self._network = network
        self._env = faults.env
        self._hazards = faults.hazards((Place.UPDATE,), {})
        self._when = faults.uniform("faults/trainer/when")
        self._outages = self._spells(OUTAGE)
        self._full = self._spells(FULL)
        self._down_until = -inf
        self._down_by = OUTAGE
        self._unheard: UpdateResult | None = None

    def _spells(self, kind: FaultKind) -> Spells | None:
        return self._faults.spells(kind.name) if self._faults.active(kind.name) else None

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, unless something strikes; an update that was committed before is only answered.

        Raises:
            LearnerFault: If it did not happen.
            UpdateUncertain: If the answer was lost.
        """
        result: UpdateResult = await self._network.call(CONTROL, LEARNER, lambda: self._update(batch))
        await self._network.standstill()
        return result

    async def _update(self, batch: Batch) -> UpdateResult:
        self._refuse_if_down(batch)
        unheard, self._unheard = self._unheard, None
        if unheard is not None and unheard.weights.version == batch.update:
            return unheard
        now = self._env.now
        blow = self._hazards.look(now)
        seconds = self._inner.seconds(batch)
        ends, kind = inf, OUTAGE
        if self._outages is not None:
            self._outages.at(now)
            ends = self._outages.begin
        if blow is not None and blow.kind is not None and blow.kind.effect is Effect.CRASHES:
            crash = now + self._when() * seconds
            ends, kind = min((ends, kind), (crash, blow.kind), key=lambda end: end[0])
        if ends < now + seconds:
            await asyncio.sleep(ends - now)
            raise self._die(batch, kind, blow)
        return await self._commit(batch, blow, seconds)

    async def _commit(self, batch: Batch, blow: Blow | None, seconds: float) -> UpdateResult:
        """Compute, write the checkpoint, and answer, as far as it comes."""
        if self._full is not None and self._full.at(self._env.now):
            # What was computed is lost: there is no room to keep it.
            await asyncio.sleep(seconds)
            self._faults.notice(FULL, self._full)
            self._faults.cost(FULL, seconds)
            raise _fault(LearnerFault, batch, FULL)
        if blow is not None and blow.kind is not None and blow.kind.effect is Effect.TORN:
            await asyncio.sleep(seconds)
            raise self._die(batch, blow.kind, blow)
        result = await self._inner.update(batch)
        if blow is not None and blow.kind is not None and blow.kind.effect is Effect.UNHEARD:
            self._unheard = result
            self._go_down(blow.kind, blow.seconds)
            raise _fault(UpdateUncertain, batch, blow.kind)
        return result

    def _refuse_if_down(self, batch: Batch) -> None:
        if self._outages is not None and self._outages.at(self._env.now):
            self._faults.notice(OUTAGE, self._outages)
            raise _fault(UpdateUncertain if self._unheard else LearnerFault, batch, OUTAGE)
        if self._env.now < self._down_until:
            raise _fault(UpdateUncertain if self._unheard else LearnerFault, batch, self._down_by)

    def _die(self, batch: Batch, kind: FaultKind, blow: Blow | None) -> LearnerFault:
        if kind is OUTAGE and self._outages is not None:
            self._outages.at(self._env.now)
            self._faults.notice(OUTAGE, self._outages)
            self._faults.cost(OUTAGE, self._outages.end - self._env.now)
        elif blow is not None:
            self._go_down(kind, blow.seconds)
        return _fault(LearnerFault, batch, kind)

    def _go_down(self, kind: FaultKind, seconds: float) -> None:
        self._down_until, self._down_by = self._env.now + seconds, kind
        self._faults.cost(kind, seconds)


def _fault(error: type[LearnerFault], batch: Batch, kind: FaultKind) -> LearnerFault:
    found = error(f"update {batch.update}: {kind.what} (drawn fault {kind.name})")
    found.cause = kind.cause  # type: ignore[attr-defined]
    return found
