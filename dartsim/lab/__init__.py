"""The laboratory: many simulated runs of one system, to tune it, to plan its machines, to explain what it waits for."""

from dartsim.lab.costs import Prices
from dartsim.lab.jobs import InProcess, Job, Outcome, Runner, run_job
from dartsim.lab.virtual import as_virtual, changed

__all__ = ["InProcess", "Job", "Outcome", "Prices", "Runner", "as_virtual", "changed", "run_job"]
