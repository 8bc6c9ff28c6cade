"""Measurements: what a run records, the states of its components, figures, alarms, report and Perfetto trace."""

from dartsim.observe.alarm import Alarm
from dartsim.observe.recorder import Instrument, Listener, Recorder, ticker
from dartsim.observe.records import HELD_OUT, Population, Segment, Snapshot, Track, UpdateRecord
from dartsim.observe.states import DesktopState, EngineState, PhaseState, TrainerState
from dartsim.observe.status import ComponentStatus, StatusSource

__all__ = [
    "HELD_OUT",
    "Alarm",
    "ComponentStatus",
    "DesktopState",
    "EngineState",
    "Instrument",
    "Listener",
    "PhaseState",
    "Population",
    "Recorder",
    "Segment",
    "Snapshot",
    "StatusSource",
    "Track",
    "TrainerState",
    "UpdateRecord",
    "ticker",
]
