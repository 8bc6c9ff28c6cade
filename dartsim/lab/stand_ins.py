"""Runs a real configuration with stand-ins for a few minutes: do driver and updates keep up with the modeled cluster?

The run is real. Stand-ins answer immediately in place of components that are not up, so the rates that are reached are
those that this machine can sustain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.virtual import as_virtual, modeled_twin, with_settings
from dartsim.observe.timings import read_timings
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

Part = Literal["desktops", "engines", "learner"]
KEYS: Mapping[Part, str] = {
    "desktops": "backend.desktops",
    "engines": "backend.workers",
    "learner": "backend.learner",
}
TWIN_HOURS = 12.0
"""Longest simulation of the twin, hours."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate that a part must deliver according to the twin, and its rate here, turns/min; None: not measured."""

    name: str
    needed: float
    delivered: float | None

    @property
    def short(self) -> bool:
        return self.delivered is not None and self.delivered < self.needed


def twin_figures(config: Config) -> Mapping[str, Any]:
    """Return the figures of the configuration on its modeled cluster, with a driver that takes no time.

    Raises:
        ConfigError: If a component of the configuration is modeled, or its model is the tiny one.
    """
    if any(part.modeled for part in config.backend.parts) or config.policy.model is None:
        raise ConfigError(
            f'backend.desktops = "{config.backend.desktops}", workers = "{config.backend.workers}", learner = '
            f'"{config.backend.learner}" with policy.model = {config.policy.model!r}: stand-ins replace real desktops, '
            "engines and a learner of a model of its own (presets osworld-1gpu, osworld-8gpu, osworld-16gpu)"
        )
    hours = min(config.run.hours, TWIN_HOURS)
    changes = {"run.hours": hours, "run.updates": None, "cluster.engine.control_seconds": 0.0}
    return run_prepared(prepare(with_settings(as_virtual(modeled_twin(config)), changes))).figures


def with_stand_ins(config: Config, parts: Collection[Part], place: Path, minutes: float) -> Config:
    """Return the configuration with stand-ins, for some minutes; their model is written to ``place``."""
    changes: dict[str, Any] = {"run.hours": minutes / 60.0, "run.updates": None, "run.target_success": None}
    changes |= {KEYS[part]: "stand_in" for part in parts}
    changes["ray.address"] = None  # stand-ins run on this machine
    if "desktops" in parts:
        changes |= {
            "tasks.source": "generated",
            "tasks.folder": None,
            "tasks.do_nothing": "ignore",
            "tasks.exclude": [],
        }
    if {"engines", "learner"} <= set(parts):
        from dartsim.real.stand_ins.model import write_stand_in

        changes |= {"policy.model": str(write_stand_in(config, place / "model")), "curation.pool.file": None}
    return with_settings(config, changes)


def rates(twin: Mapping[str, Any], figures: Mapping[str, Any], folder: Path) -> list[Rate]:
    """Return the rates that driver and updates must reach according to the twin, and those of a run."""
    updates = [entry for entry in read_timings(folder) if entry["what"] == "learner/update" and "failed" not in entry]
    seconds = sum(entry["seconds"] for entry in updates)
    trained = 60.0 * sum(entry["turns"] for entry in updates) / seconds if updates else None
    return [
        Rate("driver", twin["generated_turns_per_minute"], figures["generated_turns_per_minute"]),
        Rate("updates", twin["trained_turns_per_minute"], trained),
    ]
