"""A real configuration for a few minutes with stand-ins: do the driver and its updates keep up with its twin?

The run is a real one. Stand-ins take the place of what is not up, and answer at once: what is delivered beside them is
what this machine can do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.virtual import as_virtual, changed, planned
from dartsim.observe.timings import read_timings
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation

Part = Literal["desktops", "engines", "learner"]
KEYS: Mapping[Part, str] = {
    "desktops": "backend.desktops",
    "engines": "backend.workers",
    "learner": "backend.learner",
}
TWIN_HOURS = 12.0
"""Most simulated hours of the twin."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a part must deliver, by the twin, and what it delivered here, in turns a minute; None: not measured."""

    name: str
    needed: float
    delivered: float | None

    @property
    def short(self) -> bool:
        return self.delivered is not None and self.delivered < self.needed


def twin_figures(config: Config) -> Mapping[str, Any]:
    """Return the figures of the configuration on its modeled cluster, however slow the driver is.

    Raises:
        ConfigError: If something of the configuration is modeled, or its model is the tiny one.
    """
    if any(part.modeled for part in config.backend.parts) or config.policy.model is None:
        raise ConfigError(
            f'backend.desktops = "{config.backend.desktops}", workers = "{config.backend.workers}", learner = '
            f'"{config.backend.learner}" with policy.model = {config.policy.model!r}: stand-ins replace real desktops, '
            "engines and a learner of a model of its own (presets osworld-1gpu, osworld-8gpu, osworld-16gpu)"
        )
    hours = min(config.run.hours, TWIN_HOURS)
    changes = {"run.hours": hours, "run.updates": None, "cluster.engine.control_seconds": 0.0}
    return run_simulation(prepare(changed(as_virtual(planned(config)), changes))).figures


def with_stand_ins(config: Config, parts: Collection[Part], place: Path, minutes: float) -> Config:
    """Return the configuration for so many minutes with stand-ins; their model is written to ``place``."""
    changes: dict[str, Any] = {"run.hours": minutes / 60.0, "run.updates": None, "run.target_success": None}
    changes |= {KEYS[part]: "stand_in" for part in parts}
    changes["ray.address"] = None  # they run on this machine
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
    return changed(config, changes)


def rates(twin: Mapping[str, Any], figures: Mapping[str, Any], folder: Path) -> list[Rate]:
    """Return what driver and updates must deliver, by the twin, and what they delivered in a run."""
    updates = [entry for entry in read_timings(folder) if entry["what"] == "learner/update" and "failed" not in entry]
    seconds = sum(entry["seconds"] for entry in updates)
    trained = 60.0 * sum(entry["turns"] for entry in updates) / seconds if updates else None
    return [
        Rate("driver", twin["generated_turns_per_minute"], figures["generated_turns_per_minute"]),
        Rate("updates", twin["trained_turns_per_minute"], trained),
    ]
