"""A search for failing schedules: whole clusters under drawn schedulers, latencies, faults and orders of events.

The production control plane runs unchanged; its ports are watched and disturbed. A failure is shrunk and becomes one
token that replays it to the byte.
"""

from dartsim.fuzz.cases import Case, Fault, from_token
from dartsim.fuzz.play import Outcome, play_case
from dartsim.fuzz.search import Chunk, Found, Tally, search
from dartsim.fuzz.shrink import shrink
from dartsim.fuzz.space import draw_case

__all__ = [
    "Case",
    "Chunk",
    "Fault",
    "Found",
    "Outcome",
    "Tally",
    "draw_case",
    "from_token",
    "play_case",
    "search",
    "shrink",
]
