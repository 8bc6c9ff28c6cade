"""Measurements: states and their times, counts, figures by definition, report and traces."""

from dartsim.trace.alarm import Alarm
from dartsim.trace.part import Part
from dartsim.trace.states import DesktopState, PhaseState, TrainerState, WorkerState
from dartsim.trace.trace import Snapshot, Trace
from dartsim.trace.tracks import Population, Segment, Track
from dartsim.trace.waits import parts

__all__ = [
    "Alarm",
    "DesktopState",
    "Part",
    "PhaseState",
    "Population",
    "Segment",
    "Snapshot",
    "Trace",
    "Track",
    "TrainerState",
    "WorkerState",
    "parts",
]
