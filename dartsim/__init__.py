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

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dartsim.core.compiled import choose

if TYPE_CHECKING:
    from dartsim.api import (
        Comparison as Comparison,
    )
    from dartsim.api import (
        Result as Result,
    )
    from dartsim.api import (
        compare as compare,
    )
    from dartsim.api import (
        load as load,
    )
    from dartsim.api import (
        presets as presets,
    )
    from dartsim.api import (
        simulate as simulate,
    )
    from dartsim.config.schema import Config as Config
    from dartsim.config.sections.backend import (
        DesktopBackend as DesktopBackend,
    )
    from dartsim.config.sections.backend import (
        EngineBackend as EngineBackend,
    )
    from dartsim.config.sections.backend import (
        LearnerBackend as LearnerBackend,
    )
    from dartsim.core.errors import (
        ConfigError as ConfigError,
    )
    from dartsim.core.errors import (
        DartsimError as DartsimError,
    )
    from dartsim.core.errors import (
        NothingTrained as NothingTrained,
    )
    from dartsim.core.errors import (
        PlugInFailed as PlugInFailed,
    )
    from dartsim.core.registry import ComponentSection as ComponentSection
    from dartsim.core.registry import register as register
    from dartsim.core.sync_modes import SyncMode as SyncMode
    from dartsim.core.types import Group as Group
    from dartsim.core.types import Request as Request
    from dartsim.core.types import Task as Task
    from dartsim.curation.rules.admission import AdmissionRule as AdmissionRule
    from dartsim.curation.rules.attempts import AttemptsRule as AttemptsRule
    from dartsim.curation.rules.batches import BatchRule as BatchRule
    from dartsim.curation.rules.selection import TurnSelection as TurnSelection
    from dartsim.curation.rules.task_order import TaskOrder as TaskOrder
    from dartsim.curation.rules.turn_limit import TurnLimitRule as TurnLimitRule
    from dartsim.observe.plugin_figure import Figure as Figure
    from dartsim.observe.recorder import Instrument as Instrument
    from dartsim.observe.records import Snapshot as Snapshot
    from dartsim.rollout.routers import Routed as Routed
    from dartsim.rollout.routers import Router as Router
    from dartsim.run.policies import Policy as Policy
    from dartsim.run.router_check import check_router as check_router
    from dartsim.run.rule_check import check_rule as check_rule
    from dartsim.sim.faults.kinds import Fault as Fault
    from dartsim.sim.run_virtual import run_virtual as run_virtual
    from dartsim.trainer.advantages import AdvantageRule as AdvantageRule

choose()

_HOMES = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname
}
"""The module of each public name: those imported ``as`` themselves above, for type checkers. A name is imported when it
is first used, for most of these modules take long."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dartsim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
