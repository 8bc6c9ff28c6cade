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


class FaultyCluster:
    """Wraps the components of a cluster; without an injector, it returns them unchanged."""

    def __init__(self, injector: FaultInjector | None = None, host_of: Sequence[int] = ()) -> None:
        self.injector = injector
        self._network = None if injector is None else FaultyNetwork(injector)
        self._host_of = host_of.__getitem__

    def provider(self, provider: EnvProvider) -> EnvProvider:
        if self.injector is None or self._network is None:
            return provider
        return FaultyProvider(provider, self.injector, self._network, host_of=self._host_of)

    def workers(self, engines: Sequence[SimWorker]) -> Sequence[PolicyWorker]:
        if self.injector is None or self._network is None:
            return engines
        return [FaultyWorker(engine, self.injector, self._network) for engine in engines]

    def learner(self, learner: SimLearner) -> Learner:
        if self.injector is None or self._network is None:
            return learner
        return FaultyLearner(learner, self.injector, self._network)

    def store(self, store: Store) -> Store:
        """Return a store that may refuse trajectories."""
        return store if self.injector is None else cast("Store", FaultyStore(store, self.injector))

    def transport(self, pool: Service) -> Service:
        if self._network is None or self._network.quiet:
            return pool
        return FaultyTransport(pool, self._network, self._host_of)

    async def settle(self) -> None:
        """Wait for background work that faults started."""
        if self.injector is not None:
            await self.injector.settle()


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
