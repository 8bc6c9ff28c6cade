"""Wraps the components of a modeled cluster in the configured faults, if there are any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dartsim.core.errors import StoreFault, StoreFull
from dartsim.core.ports import EnvProvider, Learner, PolicyWorker, Store
from dartsim.core.types import Trajectory
from dartsim.rollout import Service
from dartsim.sim.faults.faulty_env import FaultyProvider
from dartsim.sim.faults.faulty_learner import FaultyLearner
from dartsim.sim.faults.faulty_network import FaultyNetwork, FaultyTransport
from dartsim.sim.faults.faulty_worker import FaultyWorker
from dartsim.sim.faults.injector import FaultInjector
from dartsim.sim.faults.kinds import KINDS
from dartsim.sim.learner import SimLearner
from dartsim.sim.worker import SimWorker
from dartsim.store.wrapper import StoreWrapper

FULL, REFUSED = KINDS["store_full"], KINDS["store_error"]


EVERYWHERE = {"network", "message", "store"}
"""Parts whose faults reach every call of every component."""


class FaultyCluster:
    """Wraps the components of a cluster, and returns those to which nothing can happen unchanged."""

    def __init__(self, injector: FaultInjector | None = None, host_of: Sequence[int] = ()) -> None:
        self._faults = None if injector is None else (injector, FaultyNetwork(injector))
        self._parts = set() if injector is None else injector.parts
        self._host_of = host_of.__getitem__

    def _faults_of(self, *parts: str) -> tuple[FaultInjector, FaultyNetwork] | None:
        return self._faults if self._parts & {*EVERYWHERE, *parts} else None

    def provider(self, provider: EnvProvider) -> EnvProvider:
        faults = self._faults_of("desktop", "host")
        return FaultyProvider(provider, *faults, host_of=self._host_of) if faults else provider

    def workers(self, engines: Sequence[SimWorker]) -> Sequence[PolicyWorker]:
        faults = self._faults_of("worker")
        return [FaultyWorker(engine, *faults) for engine in engines] if faults else engines

    def learner(self, learner: SimLearner) -> Learner:
        faults = self._faults_of("learner")
        return FaultyLearner(learner, *faults) if faults else learner

    def store(self, store: Store) -> Store:
        """Return a store that may refuse trajectories."""
        faults = self._faults_of("store")
        return cast("Store", FaultyStore(store, faults[0])) if faults else store

    def transport(self, pool: Service) -> Service:
        if self._faults is None or self._faults[1].quiet:
            return pool
        return FaultyTransport(pool, self._faults[1], self._host_of)

    async def settle(self) -> None:
        """Wait for background work that faults started."""
        if self._faults is not None:
            await self._faults[0].settle()


class FaultyStore(StoreWrapper):
    """A store that sometimes refuses trajectories."""

    def __init__(self, inner: Store, injector: FaultInjector) -> None:
        super().__init__(inner)
        self._injector = injector
        self._full = injector.window_fault(FULL.name)
        self._refused = injector.call_fault(REFUSED.name)

    def record(self, trajectory: Trajectory) -> None:
        during = f"attempt {trajectory.attempt.id} cannot be kept: "
        now = self._injector.env.now
        if self._full is not None and self._full.is_open(now):
            self._injector.count_window(FULL, self._full)
            raise FULL.error(StoreFull, during)
        if self._refused is not None and self._refused.hit(now, 0, 1) is not None:
            self._injector.count(REFUSED)
            raise REFUSED.error(StoreFault, during)
        self._inner.record(trajectory)
