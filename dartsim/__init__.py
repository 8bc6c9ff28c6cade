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

The public API is ``__all__`` here, in ``dartsim.envs`` and in ``dartsim.testing``; all else is internal::

    run      simulate, compare, load, presets, run_virtual; Result, Comparison, Config
    extend   register, ComponentSection; Router (Routed), AdmissionRule, AdvantageRule, AttemptsRule, BatchRule,
             TaskOrder, TurnLimitRule, TurnSelection, SyncMode, Policy, Fault, Figure, Instrument; DesktopBackend,
             EngineBackend, LearnerBackend; they are given Task, Group, Request, Snapshot
    check    check_router, check_rule
    errors   DartsimError, ConfigError, NothingTrained, PlugInFailed

A patch release removes none of these, no setting, no figure and no kind of plug-in; until 1.0 a minor release may, and
the changelog then says what replaces it. Run directories are read by later releases of the same minor version.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dartsim.core.compiled import choose

if TYPE_CHECKING:
    from dartsim.api import Comparison, Result, compare, load, presets, simulate
    from dartsim.config.schema import Config
    from dartsim.config.sections.backend import DesktopBackend, EngineBackend, LearnerBackend
    from dartsim.core.errors import ConfigError, DartsimError, NothingTrained, PlugInFailed
    from dartsim.core.registry import ComponentSection, register
    from dartsim.core.sync_modes import SyncMode
    from dartsim.core.types import Group, Request, Task
    from dartsim.curation.rules.admission import AdmissionRule
    from dartsim.curation.rules.attempts import AttemptsRule
    from dartsim.curation.rules.batches import BatchRule
    from dartsim.curation.rules.selection import TurnSelection
    from dartsim.curation.rules.task_order import TaskOrder
    from dartsim.curation.rules.turn_limit import TurnLimitRule
    from dartsim.observe.plugin_figure import Figure
    from dartsim.observe.recorder import Instrument
    from dartsim.observe.records import Snapshot
    from dartsim.rollout.routers import Routed, Router
    from dartsim.run.policies import Policy
    from dartsim.run.router_check import check_router
    from dartsim.run.rule_check import check_rule
    from dartsim.sim.faults.kinds import Fault
    from dartsim.sim.run_virtual import run_virtual
    from dartsim.trainer.advantages import AdvantageRule

choose()

_HOMES = {
    "dartsim.api": ("Comparison", "Result", "compare", "load", "presets", "simulate"),
    "dartsim.config.schema": ("Config",),
    "dartsim.config.sections.backend": ("DesktopBackend", "EngineBackend", "LearnerBackend"),
    "dartsim.core.errors": ("ConfigError", "DartsimError", "NothingTrained", "PlugInFailed"),
    "dartsim.core.registry": ("ComponentSection", "register"),
    "dartsim.core.sync_modes": ("SyncMode",),
    "dartsim.core.types": ("Group", "Request", "Task"),
    "dartsim.observe.records": ("Snapshot",),
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
    "dartsim.run.router_check": ("check_router",),
    "dartsim.rollout.routers": ("Routed", "Router"),
    "dartsim.sim.run_virtual": ("run_virtual",),
    "dartsim.trainer.advantages": ("AdvantageRule",),
}
"""Where each public name is: imported when first used, for most of these modules take long."""

__all__ = [
    "AdmissionRule",
    "AdvantageRule",
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
    "Group",
    "Instrument",
    "LearnerBackend",
    "NothingTrained",
    "PlugInFailed",
    "Policy",
    "Request",
    "Result",
    "Routed",
    "Router",
    "Snapshot",
    "SyncMode",
    "Task",
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
