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


class FaultFreeCluster:
    """A cluster without faults: returns components unchanged."""

    def provider(self, provider: EnvProvider) -> EnvProvider:
        return provider

    def workers(self, engines: Sequence[SimWorker]) -> Sequence[PolicyWorker]:
        return engines

    def learner(self, learner: SimLearner) -> Learner:
        return learner

    def store(self, store: Store) -> Store:
        return store

    def transport(self, pool: Service) -> Service:
        return pool

    async def settle(self) -> None:
        """Wait for background work that faults started."""


class FaultyCluster(FaultFreeCluster):
    """A cluster with faults."""

    def __init__(self, injector: FaultInjector, host_of: Sequence[int]) -> None:
        self.injector = injector
        self.network = FaultyNetwork(injector)
        self._host_of = host_of.__getitem__

    def provider(self, provider: EnvProvider) -> EnvProvider:
        return FaultyProvider(provider, self.injector, self.network, host_of=self._host_of)

    def workers(self, engines: Sequence[SimWorker]) -> Sequence[PolicyWorker]:
        return [FaultyWorker(engine, self.injector, self.network) for engine in engines]

    def learner(self, learner: SimLearner) -> Learner:
        return FaultyLearner(learner, self.injector, self.network)

    def store(self, store: Store) -> Store:
        """Return a store that may refuse trajectories."""
        refuses = self.injector.is_active(FULL.name) or self.injector.is_active(REFUSED.name)
        return cast("Store", FaultyStore(store, self.injector)) if refuses else store

    def transport(self, pool: Service) -> Service:
        return pool if self.network.quiet else FaultyTransport(pool, self.network, self._host_of)

    async def settle(self) -> None:
        await self.injector.settle()


class FaultyStore(StoreWrapper):
    """A store that sometimes refuses trajectories."""

    def __init__(self, inner: Store, injector: FaultInjector) -> None:
        super().__init__(inner)
        self._injector = injector
        self._full = injector.window_fault(FULL.name) if injector.is_active(FULL.name) else None
        self._refused = injector.call_fault(REFUSED.name) if injector.is_active(REFUSED.name) else None

    def record(self, trajectory: Trajectory) -> None:
        kept = f"attempt {trajectory.attempt.id} cannot be kept"
        now = self._injector.env.now
        if self._full is not None and self._full.is_open(now):
            self._injector.count_window(FULL, self._full)
            raise StoreFull(f"{kept}: {FULL.description} (injected fault {FULL.name})")
        if self._refused is not None and self._refused.hit(now, 0, 1) is not None:
            self._injector.count(REFUSED)
            raise StoreFault(f"{kept}: {REFUSED.description} (injected fault {REFUSED.name})")
        self._inner.record(trajectory)
