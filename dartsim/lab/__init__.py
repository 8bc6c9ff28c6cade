"""The laboratory: many simulated runs of one system, to tune it, to plan its machines, to explain what it waits for."""

from dartsim.lab.costs import Prices
from dartsim.lab.jobs import Job, Outcome, run_job
from dartsim.lab.sweep import Executor, InProcess, Trial, executor_for, sweep
from dartsim.lab.virtual import as_virtual, changed

__all__ = [
    "Executor",
    "InProcess",
    "Job",
    "Outcome",
    "Prices",
    "Trial",
    "as_virtual",
    "changed",
    "executor_for",
    "run_job",
    "sweep",
]
