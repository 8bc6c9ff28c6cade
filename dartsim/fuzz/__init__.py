"""A search for failing schedules: whole clusters with random schedulers, latencies, faults and orders of events.

The production control plane runs unchanged; its ports are checked, and the components behind them have faults. A
failure is shrunk, and its folder replays it exactly.
"""

from dartsim.fuzz.cases import Case, case_of_json, fault_window
from dartsim.fuzz.runner import CaseResult, run_case
from dartsim.fuzz.search import Chunk, ChunkResult, Tally, search, shrink
from dartsim.fuzz.space import draw_case

__all__ = [
    "Case",
    "CaseResult",
    "Chunk",
    "ChunkResult",
    "Tally",
    "case_of_json",
    "draw_case",
    "fault_window",
    "run_case",
    "search",
    "shrink",
]
