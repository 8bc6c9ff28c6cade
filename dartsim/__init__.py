"""dartsim: decoupled, asynchronous reinforcement learning of GUI agents, simulation-first.

One control plane, written once as plain asyncio, in real time or in virtual time::

    task order --> DataManager --admit--> EnvCluster: a desktop plays an attempt, turn by turn
                       ^   |                 |    ^
                       |   |                 v    |
                       |   |            RolloutService --> workers (one engine each)
                 finish|   |next_batch       ^
                       |   v                 |publish (weight sync, worker by worker)
                  trajectories --> Trainer: update --> new version

Backends implement the protocols of ``dartsim.core.ports``: a SimPy cluster model (``dartsim.sim``, ``envs``), and
desktops, engines and optimizers that exist (``real``).

The public API is ``__all__``, with ``dartsim.envs`` and ``dartsim.testing``; all else may change at any time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dartsim.api import Comparison, Result, compare, load, presets, simulate
    from dartsim.config.schema import Config
    from dartsim.config.sections.backend import DesktopBackend, EngineBackend, LearnerBackend
    from dartsim.core.errors import ConfigError, DartsimError
    from dartsim.core.registry import ComponentSection, register
    from dartsim.core.sync_modes import SyncMode
    from dartsim.curation.rules.admission import AdmissionRule
    from dartsim.curation.rules.attempts import AttemptsRule
    from dartsim.curation.rules.batches import BatchRule
    from dartsim.curation.rules.selection import TurnSelection
    from dartsim.curation.rules.task_order import TaskOrder
    from dartsim.curation.rules.turn_limit import TurnLimitRule
    from dartsim.observe.plugin_figure import Figure
    from dartsim.observe.recorder import Instrument
    from dartsim.rollout.router_check import check_router
    from dartsim.rollout.routers import Routed, Router
    from dartsim.run.policies import Policy
    from dartsim.run.rule_check import check_rule
    from dartsim.sim.faults.kinds import Fault
    from dartsim.sim.run_virtual import run_virtual

_HOMES = {
    "dartsim.api": ("Comparison", "Result", "compare", "load", "presets", "simulate"),
    "dartsim.config.schema": ("Config",),
    "dartsim.config.sections.backend": ("DesktopBackend", "EngineBackend", "LearnerBackend"),
    "dartsim.core.errors": ("ConfigError", "DartsimError"),
    "dartsim.core.registry": ("ComponentSection", "register"),
    "dartsim.core.sync_modes": ("SyncMode",),
    "dartsim.curation.rules.admission": ("AdmissionRule",),
    "dartsim.curation.rules.attempts": ("AttemptsRule",),
    "dartsim.curation.rules.batches": ("BatchRule",),
    "dartsim.curation.rules.selection": ("TurnSelection",),
    "dartsim.curation.rules.task_order": ("TaskOrder",),
    "dartsim.curation.rules.turn_limit": ("TurnLimitRule",),
    "dartsim.observe.recorder": ("Instrument",),
    "dartsim.observe.plugin_figure": ("Figure",),
    "dartsim.run.policies": ("Policy",),
    "dartsim.run.rule_check": ("check_rule",),
    "dartsim.sim.faults.kinds": ("Fault",),
    "dartsim.rollout.router_check": ("check_router",),
    "dartsim.rollout.routers": ("Routed", "Router"),
    "dartsim.sim.run_virtual": ("run_virtual",),
}
"""Where each public name is: imported when first used, for most of these modules take long."""

__all__ = [
    "AdmissionRule",
    "AttemptsRule",
    "BatchRule",
    "Comparison",
    "ComponentSection",
    "Config",
    "ConfigError",
    "DartsimError",
    "DesktopBackend",
    "EngineBackend",
    "Fault",
    "Figure",
    "Instrument",
    "LearnerBackend",
    "Policy",
    "Result",
    "Routed",
    "Router",
    "SyncMode",
    "TaskOrder",
    "TurnLimitRule",
    "TurnSelection",
    "check_router",
    "check_rule",
    "compare",
    "load",
    "presets",
    "register",
    "run_virtual",
    "simulate",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'dartsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
