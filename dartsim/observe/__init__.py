"""Measurements: states and their times, counts, figures by definition, report and traces."""

from dartsim.observe.alarm import Alarm
from dartsim.observe.part import Part
from dartsim.observe.recorder import Recorder, Snapshot
from dartsim.observe.states import DesktopState, PhaseState, TrainerState, WorkerState
from dartsim.observe.tracks import Population, Segment, Track
from dartsim.observe.waits import parts

__all__ = [
    "Alarm",
    "DesktopState",
    "Part",
    "PhaseState",
    "Population",
    "Recorder",
    "Segment",
    "Snapshot",
    "Track",
    "TrainerState",
    "WorkerState",
    "parts",
]
