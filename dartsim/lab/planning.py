"""Finds the best use of given machines by simulation: number of desktops, split of the GPUs, and weight sync.

A plan is a study (``dartsim.lab.study``) of the cluster's own keys. It assumes that the trainer's GPUs share the tokens
of an update evenly, so that time per token is inversely proportional to their number. Verify this on real machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import CategoricalDistribution, IntDistribution
from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.jobs import Prices, read_objective
from dartsim.lab.study import StudySpec
from dartsim.lab.virtual import as_virtual, with_settings
from dartsim.run.prepare import prepare, reserved_gib

UNBOUND = 64
"""Most desktops per host if they take no memory."""
SIZES = 20
"""Numbers of desktops that are tried, evenly spaced."""

DESKTOPS, WORKERS, SYNC = "rollout.num_envs", "rollout.num_workers", "weight sync"
"""Keys that a plan chooses."""

SYNCS: Mapping[str, Mapping[str, Any]] = {
    "keep one by one": {"rollout.sync.mode": "keep", "rollout.sync.workers_at_a_time": 1},
    "drain one by one": {"rollout.sync.mode": "drain", "rollout.sync.workers_at_a_time": 1},
    "restart one by one": {"rollout.sync.mode": "restart", "rollout.sync.workers_at_a_time": 1},
    "keep all at once": {"rollout.sync.mode": "keep", "rollout.sync.workers_at_a_time": "all"},
}
"""Weight syncs to compare with the configuration's own."""
OWN = "as configured"


@dataclass(frozen=True, kw_only=True)
class PlanSpec(StudySpec):
    """A study whose points are splits of machines."""

    gpus: int
    """GPUs of workers and trainer together."""
    hosts: Mapping[str, Any]
    """Settings of the hosts."""
    capacity: int
    """Desktops that fit on the hosts."""

    @override
    def settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a split of the machines; other settings stay as in the base."""
        rollout, learner, gpus = self.base.rollout, self.base.cluster.learner, self.gpus
        total = point.get(DESKTOPS, min(rollout.num_desktops, self.capacity))
        spares = min(rollout.warm_envs, total - 1)
        workers = point.get(WORKERS, min(rollout.num_workers, gpus - 1))
        trainer = gpus - workers
        sync = dict(SYNCS.get(point.get(SYNC, OWN), {}))
        at_a_time = sync.get("rollout.sync.workers_at_a_time", rollout.sync.workers_at_a_time)
        return {
            DESKTOPS: total - spares,
            "rollout.warm_envs": spares,
            WORKERS: workers,
            **sync,
            "rollout.sync.workers_at_a_time": at_a_time if at_a_time == "all" else min(at_a_time, workers),
            "cluster.learner.gpus": trainer,
            "cluster.learner.kilotoken_seconds": learner.kilotoken_seconds * learner.gpus / trainer,
            **self.hosts,
            "cluster.hosts.slow_count": min(self.base.cluster.hosts.slow_count, self.hosts["cluster.hosts.count"]),
        }

    @override
    def own_point(self) -> dict[str, Any]:
        return {**super().own_point(), SYNC: OWN}


def plan_spec(base: Config, gpus: int, hosts: Mapping[str, Any], prices: Prices) -> PlanSpec:
    """Return the study of all splits of machines, including spare desktops.

    Args:
        base: The configuration.
        gpus: GPUs of workers and trainer together.
        hosts: Settings of the machines for desktops that differ from the configuration's.
        prices: Prices of the machines.

    Raises:
        ConfigError: If the machines are too few or too small.
    """
    if gpus < 2:
        raise ConfigError(f"a plan needs 2 GPUs or more, one to roll out and one to train; got {gpus}")
    own = base.cluster.hosts
    hosts = {"cluster.hosts.count": own.count, "cluster.hosts.memory_gib": own.memory_gib, **hosts}
    count, memory_gib = hosts["cluster.hosts.count"], hosts["cluster.hosts.memory_gib"]
    need = prepare(as_virtual(base)).timing.memory_gib
    room = max(0.0, memory_gib - reserved_gib(base))
    capacity = count * (int(room // need) if need > 0.0 else UNBOUND)
    if capacity < 1:
        raise ConfigError(
            f"a desktop of {need:g} GiB does not fit on a host of {memory_gib:g} GiB; name larger hosts, "
            "or another cluster.env.profile"
        )
    step = max(1, capacity // SIZES)
    space = {
        DESKTOPS: IntDistribution(capacity - (capacity - 1) // step * step, capacity, step=step),
        WORKERS: IntDistribution(1, gpus - 1),
        SYNC: CategoricalDistribution((OWN, *(name for name, sync in SYNCS.items() if _allowed(base, sync)))),
    }
    return PlanSpec(
        base=base,
        space=space,
        objectives=(read_objective("steady_turns_per_minute"),),
        prices=prices,
        gpus=gpus,
        hosts=hosts,
        capacity=capacity,
    )


def _allowed(base: Config, settings: Mapping[str, Any]) -> bool:
    """Whether a weight sync differs from a configuration's own and is compatible with its other rules."""
    sync = base.rollout.sync
    if (sync.mode, sync.workers_at_a_time) == tuple(settings.values()):
        return False
    try:
        with_settings(base, settings)
    except ConfigError:
        return False
    return True
