"""The recorded window: the newest time for which the state of every component is known.

Only the newest segments of each population are kept, so that it is fully known from some time on. The window starts at
the latest of these times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dartsim.observe.recorder import Recorder
from dartsim.observe.recording import KEPT_FIELDS, Stays
from dartsim.observe.records import Population
from dartsim.observe.states import POPULATIONS


class Window(NamedTuple):
    """A time span, seconds since the start of the run, in which the state of every component is known.

    Attributes:
        start: Of the span.
        end: Of the span.
        sizes: Number of components, by population.
        stays: By population; within the span, and without gaps for each component.
    """

    start: float
    end: float
    sizes: Mapping[str, int]
    stays: Mapping[str, Stays]

    def clipped(self, start: float) -> Window:
        """Return the window from ``start`` on."""
        stays = {name: _clipped(own, start, self.end) for name, own in self.stays.items()}
        return self._replace(start=start, stays=stays)


def recorded_window(recorder: Recorder) -> Window | None:
    """Return the window of a closed recorder; None if no segments are kept."""
    return window_of([kept_stays(population, recorder.started) for population in recorder.populations()])


def kept_stays(population: Population, started: float) -> Stays:
    """Return the segments of a population that memory keeps, seconds since the start of the run."""
    packed = b"" if population.segments is None else population.segments.packed_since(0)
    stays = np.frombuffer(packed, list(KEPT_FIELDS)).copy()
    stays["start"] -= started
    stays["end"] -= started
    return stays


def window_of(segments: Sequence[Stays]) -> Window | None:
    """Return the time in which the stays of every component are known, from the segments of each population.

    A component belongs to it if it has any segment. None if there is no such time.
    """
    starts, ends, sizes = [0.0], [math.inf], {}
    for name, own in zip(POPULATIONS, segments, strict=False):
        members, first = np.unique(own["component"], return_index=True)  # each one's segments are in order
        last = len(own) - 1 - np.unique(own["component"][::-1], return_index=True)[1]
        starts.append(own["start"][first].max(initial=0.0))
        ends.append(own["end"][last].min(initial=math.inf))
        sizes[name] = len(members)
    start, end = float(max(starts)), float(min(ends))
    if not all(sizes.get(name) for name in POPULATIONS) or start >= end:
        return None
    return Window(0.0, end, sizes, dict(zip(POPULATIONS, segments, strict=True))).clipped(start)


def _clipped(stays: Stays, start: float, end: float) -> Stays:
    within = stays[(stays["end"] > start) & (stays["start"] < end)]
    within["start"] = np.maximum(within["start"], start)
    within["end"] = np.minimum(within["end"], end)
    return within
