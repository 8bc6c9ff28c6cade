"""Virtual configurations: for the laboratory, and as twins of real runs on their measured clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.config.load import apply_profile, from_tree
from dartsim.config.settings import MODELED, merge
from dartsim.core.errors import ConfigError
from dartsim.lab.measure import Measurement, Tree
from dartsim.run.prepare import prepare


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return a configuration with changed settings, by dotted key.

    Raises:
        ConfigError: If a key is unknown, or a value or a combination is invalid.
    """
    tree: Any = config.model_dump()
    for key, value in settings.items():
        leaf: Any = value
        for part in reversed(key.split(".")):
            leaf = {part: leaf}
        tree = merge(tree, leaf)
    return from_tree(tree)


def as_virtual(config: Config) -> Config:
    """Return the configuration for the laboratory: in memory, without segments, with a surrogate policy.

    The surrogate replaces a model: outcomes are drawn, because only times and schedules matter.

    Raises:
        ConfigError: If a component is real.
    """
    if not config.backend.virtual:
        raise ConfigError(
            "the laboratory only simulates, and this configuration has real components "
            f'(backend.desktops = "{config.backend.desktops}", backend.workers = "{config.backend.workers}", '
            f'backend.learner = "{config.backend.learner}"). `dartsim cluster measure RUN` turns a finished run into '
            "RUN/twin.toml, which can be simulated."
        )
    changes: dict[str, Any] = {
        "run.target_success": None,
        "curation.store": "memory",
        "run.max_segments": 0,
    }
    if config.policy.kind != "surrogate":
        changes |= {
            "policy.kind": "surrogate",
            "tasks.source": "generated",
            "tasks.held_out": 0,
            "curation.pool.file": None,
        }
    return with_settings(config, changes)


COMPARED = (
    "trajectories_per_minute",
    "generated_turns_per_minute",
    "trained_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "staleness_mean",
    "minutes_per_version",
    "sync_share",
)
"""The compared figures; ``sync_share`` is the share of the workers' time spent loading weights."""


_VIRTUAL: Tree = {
    **MODELED,
    "tasks": {"source": "generated", "folder": None, "held_out": 0},
    "policy": {
        "kind": "surrogate",
        "agent": {"rule": "drawn"},
        "grammar": "clicks",
        "model": None,
        "instructions": None,
    },
    "curation": {"pool": {"file": None, "collected_per_task": 0}},
    "run": {"target_success": None},
}
"""Everything modeled, with a surrogate policy."""


NEGLIGIBLE = 1e-3
"""Smaller figures have no relative error: a worker in this process loads weights in milliseconds."""


def twin(config: Config, measured: Measurement, summary: Mapping[str, Any], timings: Path) -> Config:
    """Return the virtual twin of a real run: its configuration on the measured cluster, for the same time.

    Its attempts have the recorded outcomes and lengths, group by group: learning is replayed, the system is predicted.

    Raises:
        ConfigError: If something named by the configuration is missing.
    """
    changes: Tree = {
        "run": {"hours": float(summary["simulated_hours"]), "updates": None},
        "tasks": {"count": len(prepare(config).tasks)},  # for the same order of tasks
        "surrogate": {"outcomes": str(timings.resolve())},
        "curation": {"store": "memory"},
    }
    return from_tree(apply_profile(merge(config.model_dump(), merge(_VIRTUAL, changes)), measured.settings))


def modeled_twin(config: Config) -> Config:
    """Return the virtual twin of a real configuration before anything is measured.

    It keeps scheduler, curation and hyper-parameters. Desktops, engines and trainer are modeled by its section
    ``cluster``, and a surrogate policy draws the outcomes of generated tasks.
    """
    return from_tree(merge(config.model_dump(), _VIRTUAL))


def compare(
    measured: Mapping[str, float | None], predicted: Mapping[str, float | None]
) -> dict[str, dict[str, float | None]]:
    """Return the figures measured in the real run and predicted by its twin, and their relative errors.

    An error is None if it is undefined, or both figures are negligible.
    """
    errors: dict[str, float | None] = {}
    for name, real in measured.items():
        twin = predicted[name]
        errors[name] = None if twin is None or not real or max(real, twin) < NEGLIGIBLE else twin / real - 1.0
    return {"measured": dict(measured), "predicted": dict(predicted), "relative_error": errors}


def compared_figures(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the compared figures of a run's summary; None where it has none."""
    values = {**summary, "sync_share": summary["engine_shares"]["loading"]}
    return {name: None if values.get(name) is None else float(values[name]) for name in COMPARED}
