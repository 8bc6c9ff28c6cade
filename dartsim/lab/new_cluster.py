"""Writes a cluster file from a few numbers: every setting of a cluster and its workload, with meaning and source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tomli_w

from dartsim.config import Config, load
from dartsim.config.load import CLUSTER, WORKLOAD
from dartsim.config.packaged import workloads
from dartsim.config.settings import Setting, describe
from dartsim.core.section import NONE
from dartsim.lab.batch_tokens import tokens_per_turn
from dartsim.lab.machines import read_hosts
from dartsim.lab.virtual import with_settings
from dartsim.run.prepare import prepare

FIXED_SHARE = 0.2
"""Share of an update that does not depend on its tokens: 270 of DART's 1,270 s (21.2 min per version)."""

WRITTEN = ("run.hours", "tasks.source", "tasks.count", *WORKLOAD[2:], *CLUSTER)
UNUSED = (
    *("cluster.faults.", "cluster.engine.batch_", "cluster.engine.request_seconds", "cluster.engine.max_batch"),
    "cluster.engine.prompt",
    "surrogate.outcomes",
)
"""Keys that are written, and prefixes of keys that are not: faults are an option, the rest is for measured engines."""

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
    """Return the text of a cluster file: settings from the numbers, and all other settings with their defaults.

    Raises:
        ConfigError: If the numbers do not fit together.
    """
    given = numbers.settings
    config = with_settings(
        load("dart", workload_name=OSWORLD), {**given, "run.hours": HOURS, "rollout.sync.workers_at_a_time": 1}
    )
    prepare(config)
    tree, about = config.model_dump(), workloads()[OSWORLD]["about"]
    source = f"Other settings: the workload {OSWORLD!r} ({about['source']}), or their defaults."
    lines = [
        "# A cluster and its workload for `--on`, written by `dartsim cluster`; what was asked for is marked (given).",
        f"# {source}",
    ]
    lines += [f"# {departure}" for departure in about["departures"]]
    section = ""
    for setting in describe():
        if not _is_written(setting):
            continue
        table, _, key = setting.key.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        value: Any = tree
        for part in setting.key.split("."):
            value = value[part]
        lines.append(f"# {'(given) ' if setting.key in given else ''}{setting.meaning}")
        written = tomli_w.dumps({key: NONE if value is None else value}).rstrip()
        lines.append(f"{key} = {{}}" if value == {} else written)
    return "\n".join(lines) + "\n"


def _is_written(setting: Setting) -> bool:
    if setting.key == "cluster.engine.model" or setting.key.startswith(UNUSED):
        return False
    return any(setting.key == part or setting.key.startswith(f"{part}.") for part in WRITTEN)
