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
from dartsim.lab.machines import Machines
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

    machines: Machines
    capacity: int
    """Desktops that fit on the hosts."""

    @override
    def settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a split of the machines; other settings stay as in the base."""
        machines, rollout, learner = self.machines, self.base.rollout, self.base.cluster.learner
        total = point.get(DESKTOPS, min(rollout.num_desktops, self.capacity))
        spares = min(rollout.warm_envs, total - 1)
        workers = point.get(WORKERS, min(rollout.num_workers, machines.gpus - 1))
        trainer = machines.gpus - workers
        sync = dict(SYNCS.get(point.get(SYNC, OWN), {}))
        at_a_time = sync.get("rollout.sync.workers_at_a_time", rollout.sync.workers_at_a_time)
        settings = {
            DESKTOPS: total - spares,
            "rollout.warm_envs": spares,
            WORKERS: workers,
            **sync,
            "rollout.sync.workers_at_a_time": at_a_time if at_a_time == "all" else min(at_a_time, workers),
            "cluster.learner.gpus": trainer,
            "cluster.learner.kilotoken_seconds": learner.kilotoken_seconds * learner.gpus / trainer,
            "cluster.hosts.count": machines.hosts,
            "cluster.hosts.memory_gib": machines.memory_gib,
            "cluster.hosts.slow_count": min(self.base.cluster.hosts.slow_count, machines.hosts),
        }
        return settings if machines.cores is None else {**settings, "cluster.hosts.cores": machines.cores}

    @override
    def own_point(self) -> dict[str, Any]:
        return {**super().own_point(), SYNC: OWN}


def plan_spec(base: Config, machines: Machines, prices: Prices, seeds: int = 1) -> PlanSpec:
    """Return the study of all splits of machines, including spare desktops.

    Raises:
        ConfigError: If the machines are too few or too small.
    """
    if machines.gpus < 2:
        raise ConfigError(f"a plan needs 2 GPUs or more, one to roll out and one to train; got {machines.gpus}")
    need = prepare(as_virtual(base)).timing.memory_gib
    room = max(0.0, machines.memory_gib - reserved_gib(base))
    capacity = machines.hosts * (int(room // need) if need > 0.0 else UNBOUND)
    if capacity < 1:
        raise ConfigError(
            f"a desktop of {need:g} GiB does not fit on a host of {machines.memory_gib:g} GiB; name larger hosts, "
            "or another cluster.env.profile"
        )
    step = max(1, capacity // SIZES)
    space = {
        DESKTOPS: IntDistribution(capacity - (capacity - 1) // step * step, capacity, step=step),
        WORKERS: IntDistribution(1, machines.gpus - 1),
        SYNC: CategoricalDistribution((OWN, *(name for name, sync in SYNCS.items() if _allowed(base, sync)))),
    }
    return PlanSpec(
        base=base,
        space=space,
        objectives=(read_objective("steady_turns_per_minute"),),
        seeds=seeds,
        prices=prices,
        machines=machines,
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
