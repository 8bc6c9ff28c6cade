"""dartsim: decoupled, asynchronous reinforcement learning of GUI agents, simulation-first.

One control plane, written once as plain asyncio, in real time or in virtual time::

    task order --> DataManager --admit--> EnvCluster: a desktop plays an attempt, turn by turn
                       ^   |                 |    ^
                       |   |                 v    |
                       |   |            RolloutService --> workers (one engine each)
                 finish|   |next_batch       ^
                       |   v                 |publish (weight sync, worker by worker)
                  trajectories --> Trainer: update --> new version

Backends implement the protocols of ``dartsim.core.ports``: a SimPy model of a cluster (``dartsim.sim``, ``envs``), or
real desktops, engines and optimizers (``real``).

The public API is ``__all__`` here, in ``dartsim.envs`` and in ``dartsim.testing``; everything else is internal::

    run      simulate, compare, load, presets, run_virtual; Result, Comparison, Config
    extend   register, ComponentSection; Router (Routed), LendingRule, AdmissionRule, AdvantageRule, AttemptsRule,
             BatchRule, TaskOrder, TurnLimitRule, TurnSelection, SyncMode, Policy, Fault, Instrument; DesktopBackend,
             EngineBackend, LearnerBackend, BackendContext
    data     Task, Observation, Request, Reply, Turn, Trajectory, Group, GroupCounts, RunningGroup, Recorder,
             Snapshot, UpdateRecord, FaultKind; EnvProvider, PolicyWorker, Learner (the ports);
             ConditionResult, SchedulerRank
    check    check_rule
    errors   DartsimError, ConfigError, NothingTrained, PlugInFailed

A patch release removes none of these, nor a setting, a figure or a kind of plug-in. Until 1.0 a minor release may, and
the changelog then names the replacement. Later releases of the same minor version read older run directories.
"""

from typing import Any

import lazy_loader

from dartsim.core.compiled import choose, documented

choose()
_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # __init__.pyi has the names


def __getattr__(name: str) -> Any:
    return documented(_attribute(name))
