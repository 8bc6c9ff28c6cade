"""Configurations for the laboratory: changed setting by setting, and made fit to be simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartsim.config import Config
from dartsim.config.load import from_tree, merge
from dartsim.core.errors import ConfigError


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return a configuration with settings replaced.

    Args:
        config: What is changed.
        settings: New values by dotted key.

    Raises:
        ConfigError: If a key is unknown, or a value or the combination cannot be.
    """
    tree: Any = config.model_dump()
    for key, value in settings.items():
        leaf: Any = value
        for part in reversed(key.split(".")):
            leaf = {part: leaf}
        tree = merge(tree, leaf)
    return from_tree(tree)


def as_virtual(config: Config) -> Config:
    """Return the configuration as the laboratory runs it: simulated, without stored segments, nothing learned.

    A model that sees is replaced by a surrogate policy: outcomes are drawn, and only times and schedules count.

    Raises:
        ConfigError: If it names parts that exist and no measured cluster to stand for them.
    """
    if not config.backend.virtual:
        raise ConfigError(
            "the laboratory only simulates, and this configuration names parts that exist "
            f'(backend.desktops = "{config.backend.desktops}", backend.workers = "{config.backend.workers}", '
            f'backend.learner = "{config.backend.learner}"). `dartsim measure RUN` turns a finished run into '
            "RUN/twin.toml, which can be simulated."
        )
    changes: dict[str, Any] = {
        "run.target_success": None,
        "curation.store": "memory",
        "recorder.max_segments": 0,
        "recorder.max_requests": 0,
    }
    if config.policy.kind != "surrogate":
        changes |= {
            "policy.kind": "surrogate",
            "tasks.source": "generated",
            "tasks.held_out": 0,
            "curation.pool.file": None,
            "trainer.promotion.enabled": False,
        }
    return changed(config, changes)
