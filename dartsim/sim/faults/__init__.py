"""Faults of the modeled cluster: one table of kinds, one injector, and faulty versions of every component.

    kinds (the table; those active under a configuration) <-- timing (when) <-- injector (where, and what)
    injector <-- faulty_network <-- faulty_env, faulty_worker, faulty_learner <-- faulty_cluster

The wrappers enclose modeled components; the control plane does not know about them. A fault comes from a rate or from a
window at a set time, as drawn by ``dartsim fuzz``.
"""

from dartsim.sim.faults.faulty_cluster import FaultyCluster
from dartsim.sim.faults.injector import ClusterSize, FaultInjector
from dartsim.sim.faults.kinds import (
    KINDS,
    PROFILES,
    ActiveFault,
    Effect,
    Fault,
    FaultKind,
    Place,
    Scope,
    active_faults,
    as_data,
    fault_kinds,
)

__all__ = [
    "KINDS",
    "PROFILES",
    "ActiveFault",
    "ClusterSize",
    "Effect",
    "Fault",
    "FaultInjector",
    "FaultKind",
    "FaultyCluster",
    "Place",
    "Scope",
    "active_faults",
    "as_data",
    "fault_kinds",
]
