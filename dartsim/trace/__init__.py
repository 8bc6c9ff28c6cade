"""Measurements: states and their times, counts, figures by definition, report and traces."""

from dartsim.trace.states import DesktopState, PhaseState, TrainerState, WorkerState
from dartsim.trace.trace import Snapshot, Trace
from dartsim.trace.tracks import Population, Segment, Track

__all__ = [
    "DesktopState",
    "PhaseState",
    "Population",
    "Segment",
    "Snapshot",
    "Trace",
    "Track",
    "TrainerState",
    "WorkerState",
]
