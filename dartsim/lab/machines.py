"""Splits of machines between desktops, workers and trainer, and the configuration of each split.

Assumption: the trainer's GPUs share the tokens of an update evenly, so that its time per token is inversely
proportional to their number. Measure this first on real machines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.virtual import changed
from dartsim.run.prepare import prepare, reserved_gib

HOSTS = re.compile(r"^(?P<count>\d+)x(?P<memory>\d+(?:\.\d+)?)GiB(?:x(?P<cores>\d+(?:\.\d+)?)cores)?$", re.IGNORECASE)
UNBOUND = 64
"""Desktops per host where they take no memory."""

HALF = "half of the workers at a time"
SYNCS: Mapping[str, Mapping[str, Any]] = {
    "keep, one worker at a time": {"rollout.sync.mode": "keep", "rollout.sync.workers_at_a_time": 1},
    "drain, one worker at a time": {"rollout.sync.mode": "drain", "rollout.sync.workers_at_a_time": 1},
    f"restart, {HALF}": {"rollout.sync.mode": "restart"},
    "keep, all at once": {"rollout.sync.mode": "keep", "rollout.sync.workers_at_a_time": "all"},
}
"""Weight syncs that are compared with the configuration's own."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines to plan for.

    Attributes:
        gpus: GPUs, for workers and trainer.
        hosts: Machines for desktops.
        memory_gib: Memory of each host.
        cores: Cores of each host; None keeps the configuration's.
    """

    gpus: int
    hosts: int
    memory_gib: float
    cores: float | None = None


def read_hosts(text: str) -> tuple[int, float, float | None]:
    """Parse the number, memory and cores of hosts: ``4x64GiB`` or ``4x64GiBx32cores``.

    Raises:
        ConfigError: If the text has another form, or a number is 0.
    """
    match = HOSTS.match(text.replace(" ", ""))
    numbers = () if match is None else tuple(float(number) for number in match.groups() if number is not None)
    if match is None or not all(numbers):
        raise ConfigError(
            "hosts are written COUNTxMEMORYGiB or COUNTxMEMORYGiBxCOREScores, as 4x64GiB or 4x64GiBx32cores, with "
            f"numbers above 0; got {text!r}"
        )
    return int(match["count"]), float(match["memory"]), float(match["cores"]) if match["cores"] else None


@dataclass(frozen=True, slots=True)
class MachineSplit:
    """One use of the machines."""

    num_envs: int
    spares: int
    workers: int
    trainer: int
    sync: str

    def __str__(self) -> str:
        spares = f" and {self.spares} spare" if self.spares else ""
        return f"{self.num_envs}{spares} desktops, {self.workers} + {self.trainer} GPUs, {self.sync}"


class Splits:
    """The configurations of splits of machines."""

    def __init__(self, base: Config) -> None:
        self.base = base
        self.own, settings = _own_sync(base)
        self.syncs = {name: sync for name, sync in SYNCS.items() if name == self.own or _allowed(base, sync)}
        self.syncs.setdefault(self.own, settings)

    def capacity(self, machines: Machines) -> int:
        """Return how many desktops, spares included, fit on the hosts."""
        need = prepare(self.base).timing.memory_gib
        room = max(0.0, machines.memory_gib - reserved_gib(self.base))
        return machines.hosts * (int(room // need) if need > 0.0 else UNBOUND)

    def hosts_for(self, split: MachineSplit, machines: Machines) -> int:
        return ceil((split.num_envs + split.spares) / (self.capacity(machines) / machines.hosts))

    def config(self, split: MachineSplit, machines: Machines) -> Config:
        learner = self.base.cluster.learner
        sync = dict(self.syncs[split.sync])
        at_a_time = sync.setdefault("rollout.sync.workers_at_a_time", max(1, split.workers // 2))
        if at_a_time != "all":
            sync["rollout.sync.workers_at_a_time"] = min(at_a_time, split.workers)
        settings: dict[str, Any] = {
            "rollout.num_envs": split.num_envs,
            "rollout.warm_envs": split.spares,
            "rollout.num_workers": split.workers,
            "cluster.learner.gpus": split.trainer,
            "cluster.learner.kilotoken_seconds": learner.kilotoken_seconds * learner.gpus / split.trainer,
            "cluster.hosts.count": machines.hosts,
            "cluster.hosts.memory_gib": machines.memory_gib,
            "cluster.hosts.slow_count": min(self.base.cluster.hosts.slow_count, machines.hosts),
            **sync,
        }
        if machines.cores is not None:
            settings["cluster.hosts.cores"] = machines.cores
        return changed(self.base, settings)

    def with_syncs(self, split: MachineSplit) -> list[MachineSplit]:
        """Return a split with every weight sync, the configuration's own first; with one worker, one of each mode."""
        names = sorted(self.syncs, key=lambda name: name != self.own)
        if split.workers == 1:
            modes = {self.syncs[name]["rollout.sync.mode"]: name for name in reversed(names)}
            names = [name for name in names if name in modes.values()]
        return [replace(split, sync=name) for name in names]


def _own_sync(base: Config) -> tuple[str, dict[str, Any]]:
    """Return the name, as in ``SYNCS``, and the settings of a configuration's own weight sync."""
    sync, workers = base.rollout.sync, base.rollout.num_workers
    settings = {"rollout.sync.mode": sync.mode, "rollout.sync.workers_at_a_time": sync.workers_at_a_time}
    if sync.workers_at_a_time == "all":
        name = f"{sync.mode}, all at once"
    elif sync.workers_at_a_time == 1 and sync.mode != "restart":
        name = f"{sync.mode}, one worker at a time"
    elif sync.workers_at_a_time == max(1, workers // 2):
        name = f"{sync.mode}, {HALF}"
        del settings["rollout.sync.workers_at_a_time"]
    else:
        name = f"{sync.mode}, {sync.workers_at_a_time} at a time"
    return name, settings


def _allowed(base: Config, settings: Mapping[str, Any]) -> bool:
    """Whether the other rules of a configuration allow a weight sync."""
    try:
        changed(base, settings)
    except ConfigError:
        return False
    return True
