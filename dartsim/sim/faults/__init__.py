"""Faults of the modelled cluster, as data: a table of kinds, their rates by profile, and what lets them strike.

    kinds  <-- osworld, cluster  <-- table (rates of a configuration)
                                       ^
    spells (when) <-- striking (what, where) <-- desktops, workers, learner, store; messages <-- ways

Everything is put around the modelled parts from outside; the control plane does not know. ``drawn`` has the plain
shares of failing calls that a measured profile gives.
"""

from dartsim.sim.faults.drawn import Draw, FaultyEnv, FaultyProvider, chance
from dartsim.sim.faults.kinds import PROFILES, Effect, FaultKind, Place, Scope
from dartsim.sim.faults.messages import RECOGNISED, Inbox, Network
from dartsim.sim.faults.striking import Faults, Sizes
from dartsim.sim.faults.table import KINDS, Active, active_kinds, as_data

__all__ = [
    "KINDS",
    "PROFILES",
    "RECOGNISED",
    "Active",
    "Draw",
    "Effect",
    "FaultKind",
    "Faults",
    "FaultyEnv",
    "FaultyProvider",
    "Inbox",
    "Network",
    "Place",
    "Scope",
    "Sizes",
    "active_kinds",
    "as_data",
    "chance",
]
