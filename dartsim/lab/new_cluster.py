"""A cluster file from a few numbers."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

import tomli_w

from dartsim.config import Config, load, to_toml
from dartsim.config.load import CLUSTER, WORKLOAD
from dartsim.config.packaged import workloads
from dartsim.lab.batch_tokens import tokens_per_turn
from dartsim.lab.machines import read_hosts
from dartsim.lab.virtual import with_settings
from dartsim.run.prepare import prepare

FIXED_SHARE = 0.2
"""Share of an update that does not depend on its tokens: 270 of DART's 1,270 s (21.2 min per version)."""

OSWORLD = "osworld"
"""The workload that provides tasks and lengths of attempts, and the desktops' latency profile."""

HOURS = 8.0
"""Simulated hours: enough for some 50 updates of a few minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNumbers:
    """The numbers that matter most.

    Attributes:
        gpus: GPUs of engines and trainer together, 2 or more; half of them are the trainer's.
        desktops: Number of desktops.
        hosts: Their machines: ``4x64GiB`` or ``4x64GiBx32cores``.
        update_seconds: Time of an update of a full batch, with one sequence per turn and DART's window of screenshots.
    """

    gpus: int = 8
    desktops: int = 64
    hosts: str = "8x64GiBx32cores"
    update_seconds: float = 216.0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that follow from the numbers."""
        trainer = self.gpus // 2
        count, memory_gib, cores = read_hosts(self.hosts)
        hosts = {"cluster.hosts.cores": cores} if cores is not None else {}
        return {
            "rollout.num_envs": self.desktops,
            "rollout.num_workers": self.gpus - trainer,
            "cluster.hosts.count": count,
            **hosts,
            "cluster.hosts.memory_gib": memory_gib,
            "cluster.env.profile": OSWORLD,
            "cluster.engine.gpu": "h100",
            "cluster.learner.gpus": trainer,
            "cluster.learner.fixed_seconds": round(FIXED_SHARE * self.update_seconds, 3),
            "cluster.learner.kilotoken_seconds": round((1.0 - FIXED_SHARE) * self.update_seconds / self.kilotokens, 6),
        }

    @property
    def batch_turns(self) -> float:
        """Mean turns of a full batch of the workload."""
        drawn, curation = self._config.surrogate, self._config.curation
        success = drawn.mean_success or 0.5
        turns = success * drawn.success_turns_mean + (1.0 - success) * drawn.failure_turns_mean
        return turns * curation.attempts.group_size * curation.batch.max_groups

    @property
    def kilotokens(self) -> float:
        """Tokens of a full batch in thousands, computed as DART does: one sequence per turn."""
        return self.batch_turns * tokens_per_turn(prepare(self._config)) / 1000.0

    @property
    def _config(self) -> Config:
        return load("dart-measured", workload_name=OSWORLD)


def cluster_toml(numbers: ClusterNumbers) -> str:
    """Return the text of a cluster file: every setting of the cluster and its workload, after these numbers.

    Raises:
        ConfigError: If the numbers do not fit together.
    """
    changes = {**numbers.settings, "run.hours": HOURS, "rollout.sync.workers_at_a_time": 1}
    config = with_settings(load("dart", workload_name=OSWORLD), changes)
    prepare(config)
    about = workloads()[OSWORLD]["about"]
    lines = [
        "# A cluster and its workload for `--on`, written by `dartsim cluster new`. Given:",
        *(f"# {key} = {value}" for key, value in numbers.settings.items()),
        f"# Others: the workload {OSWORLD!r} ({about['source']}), or their defaults; `dartsim config --list settings`",
        "# explains them.",
        *(f"# {departure}" for departure in about["departures"]),
    ]
    return "\n".join(lines) + "\n\n" + tomli_w.dumps(_part(config))


def _part(config: Config) -> dict[str, Any]:
    """Return the settings of a configuration's cluster and workload."""
    everything, part = tomllib.loads(to_toml(config)), dict[str, Any]()
    for key in (*CLUSTER, *WORKLOAD):
        *tables, name = key.split(".")
        source, target = everything, part
        for table in tables:
            source, target = source[table], target.setdefault(table, {})
        target[name] = source[name]
    return part
