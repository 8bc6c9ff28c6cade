"""Virtual time and the cluster model: the only part of dartsim that uses SimPy."""

from dartsim.sim.environment import SimEnvironment, wait
from dartsim.sim.loop import SimLoop
from dartsim.sim.perturb import Perturbation
from dartsim.sim.run_virtual import SimReport, run_virtual, run_virtual_reported
from dartsim.sim.tasks import Node

__all__ = [
    "Node",
    "Perturbation",
    "SimEnvironment",
    "SimLoop",
    "SimReport",
    "run_virtual",
    "run_virtual_reported",
    "wait",
]
