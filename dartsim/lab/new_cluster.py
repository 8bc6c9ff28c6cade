"""A cluster file from a few numbers."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import tomli_w

from dartsim.config import Config, load, to_toml
from dartsim.config.load import CLUSTER, WORKLOAD
from dartsim.config.packaged import workloads
from dartsim.core.errors import ConfigError
from dartsim.lab.virtual import with_settings
from dartsim.run.prepare import prepare

OSWORLD = "osworld"
"""The workload that provides tasks and lengths of attempts, and the desktops' latency profile."""
BATCH_TURNS = 1_040
"""Mean turns of a full batch of this workload: 8 groups of 8 attempts."""
UPDATE_SECONDS = 222.0
"""Time of its update, one sequence per turn, by this workload's trainer: 60 s + 13,500 kilotokens of 0.012 s."""
HOURS = 8.0
"""Simulated hours: enough for some 50 updates of a few minutes."""

HOSTS = re.compile(r"^(?P<count>\d+)x(?P<memory>\d+(?:\.\d+)?)GiB(?:x(?P<cores>\d+(?:\.\d+)?)cores)?$", re.IGNORECASE)


def host_settings(text: str) -> dict[str, Any]:
    """Parse the number, memory and cores of hosts: ``4x64GiB`` or ``4x64GiBx32cores``.

    Raises:
        ConfigError: If the text has another form, or a number is 0.
    """
    match = HOSTS.match(text.replace(" ", ""))
    numbers = () if match is None else tuple(float(number) for number in match.groups() if number is not None)
    if not all(numbers) or match is None:
        raise ConfigError(
            "hosts are written COUNTxMEMORYGiB or COUNTxMEMORYGiBxCOREScores, as 4x64GiB or 4x64GiBx32cores, with "
            f"numbers above 0; got {text!r}"
        )
    cores = {"cluster.hosts.cores": float(match["cores"])} if match["cores"] else {}
    return {"cluster.hosts.count": int(match["count"]), "cluster.hosts.memory_gib": float(match["memory"]), **cores}


def cluster_settings(*, gpus: int, desktops: int, hosts: str, update_seconds: float) -> dict[str, Any]:
    """Return the settings that follow from the numbers that matter most.

    Args:
        gpus: GPUs of engines and trainer together, 2 or more; half of them are the trainer's.
        desktops: Number of desktops.
        hosts: Their machines: ``4x64GiB`` or ``4x64GiBx32cores``.
        update_seconds: Time of an update of a full batch, with one sequence per turn and DART's window of screenshots.
    """
    trainer = gpus // 2
    learner = load("dart", on=OSWORLD).cluster.learner
    factor = update_seconds / UPDATE_SECONDS
    return {
        "rollout.num_envs": desktops,
        "rollout.num_workers": gpus - trainer,
        **host_settings(hosts),
        "cluster.env.profile": OSWORLD,
        "cluster.engine.gpu": "h100",
        "cluster.learner.gpus": trainer,
        "cluster.learner.fixed_seconds": round(factor * learner.fixed_seconds, 3),
        "cluster.learner.kilotoken_seconds": round(factor * learner.kilotoken_seconds, 6),
    }


def cluster_toml(settings: dict[str, Any]) -> str:
    """Return the text of a cluster file: every setting of the cluster and its workload, after those given.

    Raises:
        ConfigError: If the settings do not fit together.
    """
    changes = {**settings, "run.hours": HOURS, "rollout.sync.workers_at_a_time": 1}
    config = with_settings(load("dart", on=OSWORLD), changes)
    prepare(config)
    about = workloads()[OSWORLD]["about"]
    lines = [
        "# A cluster and its workload for `--on`, written by `dartsim cluster new`. Given:",
        *(f"# {key} = {value}" for key, value in settings.items()),
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
