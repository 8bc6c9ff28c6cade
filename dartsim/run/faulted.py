"""The configured faults, put around the modelled parts of a cluster; nothing at all where none are configured."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dartsim.core.ports import EnvProvider, Learner, PolicyWorker, Store
from dartsim.core.rng import Streams
from dartsim.observe import Recorder
from dartsim.rollout import Service
from dartsim.run.models import Models, hosts
from dartsim.sim import SimEnvironment
from dartsim.sim.faults import Faults, Network, Sizes, active_kinds
from dartsim.sim.faults.desktops import StruckProvider
from dartsim.sim.faults.learner import StruckLearner
from dartsim.sim.faults.store import StruckStore
from dartsim.sim.faults.ways import MessageService
from dartsim.sim.faults.workers import StruckWorker
from dartsim.sim.host import place
from dartsim.sim.learner import SimLearner
from dartsim.sim.worker import SimWorker


class Unharmed:
    """A cluster without faults: every part is itself."""

    def desktops(self, provider: EnvProvider) -> EnvProvider:
        """Return what starts desktops."""
        return provider

    def workers(self, engines: Sequence[SimWorker]) -> Sequence[PolicyWorker]:
        """Return the workers."""
        return engines

    def learner(self, learner: SimLearner) -> Learner:
        """Return the trainer."""
        return learner

    def store(self, store: Store) -> Store:
        """Return the store."""
        return store

    def way(self, pool: Service) -> Service:
        """Return the pool behind the way to it."""
        return pool


class Harmed(Unharmed):
    """A cluster that faults strike.

    Args:
        faults: What strikes.
        host_of: Number of the host of each desktop.
    """

    def __init__(self, faults: Faults, host_of: Sequence[int]) -> None:
        self.faults = faults
        self.network = Network(faults)
        self._host_of = host_of.__getitem__

    def desktops(self, provider: EnvProvider) -> EnvProvider:
        """Return what starts desktops that faults strike."""
        return StruckProvider(provider, self.faults, self.network, host_of=self._host_of)

    def workers(self, engines: Sequence[SimWorker]) -> Sequence[PolicyWorker]:
        """Return workers that faults strike."""
        return [StruckWorker(engine, self.faults, self.network) for engine in engines]

    def learner(self, learner: SimLearner) -> Learner:
        """Return a trainer that faults strike."""
        return StruckLearner(learner, self.faults, self.network)

    def store(self, store: Store) -> Store:
        """Return a store whose disk may be full."""
        full = self.faults.active("store_full")
        return StruckStore(store, self.faults) if full else store

    def way(self, pool: Service) -> Service:
        """Return the pool behind a network on which messages go astray."""
        return pool if self.network.quiet else MessageService(pool, self.network, self._host_of)


def faulted(found: Models, env: SimEnvironment, streams: Streams, recorder: Recorder) -> Unharmed:
    """Return what puts the configured faults around the modelled parts.

    Raises:
        ConfigError: If the configuration names a kind of fault that does not exist.
    """
    config = found.config
    active = active_kinds(config.cluster.faults)
    if not active:
        return Unharmed()
    machines = hosts(config, env)
    number = {id(machine): index for index, machine in enumerate(machines)}
    placed = place(config.rollout.num_desktops, machines, found.timing.memory_gib)
    heal = config.cluster.faults.heal_after_hours
    faults = Faults(
        active,
        env=env,
        streams=streams,
        counts=recorder.counts,
        sizes=Sizes(desktops=config.rollout.num_desktops, hosts=len(machines), workers=config.rollout.num_workers),
        heal_at=inf if heal is None else heal * 3600.0,
    )
    return Harmed(faults, [number[id(machine)] for machine in placed])
