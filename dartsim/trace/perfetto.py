"""The recorded window as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each population, one thread for each desktop, worker and the trainer, and one complete event
for each stay in a state; times are microseconds of simulated time since the start of the run. Of the newest requests
there are arrows, from the turn to the request, the batch and the update (``dartsim.trace.flows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from dartsim.trace.flows import Processes, batches_and_flows
from dartsim.trace.styles import POPULATIONS, STATES
from dartsim.trace.timeline import Stay, recorded_window
from dartsim.trace.trace import Trace


def perfetto(trace: Trace, *, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the trace as a JSON object; it has no events if segments were not kept."""
    events: list[dict[str, Any]] = []
    window = recorded_window(trace)
    if window is not None:
        for order, population in enumerate(reversed(trace.populations())):
            process = order + 1
            states = [state.name.lower() for state in population.states]
            events += _process(process, order, POPULATIONS[population.name])
            for index, stays in enumerate(window.stays[population.name]):
                thread = index + 1
                events += _thread(process, thread, f"{population.name.removesuffix('s')} {index}")
                events += _events(process, thread, population.name, states, stays)
        numbers = {population.name: number + 1 for number, population in enumerate(reversed(trace.populations()))}
        events += batches_and_flows(trace, window.start, Processes(**numbers))
    return {"displayTimeUnit": "ms", "otherData": dict(meta or {}), "traceEvents": events}


def _process(process: int, order: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": order}}


def _thread(process: int, thread: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}
    yield {
        "ph": "M",
        "pid": process,
        "tid": thread,
        "name": "thread_sort_index",
        "args": {"sort_index": thread},
    }


def _events(
    process: int, thread: int, population: str, states: list[str], stays: list[Stay]
) -> Iterator[dict[str, Any]]:
    # Whole microseconds at the borders: neighbours touch and never overlap.
    borders = [round(stay.start * 1e6) for stay in stays]
    borders += [round(stay.end * 1e6) for stay in stays[-1:]]
    for stay, (start, end) in zip(stays, pairwise(borders), strict=True):
        if end > start:
            yield {
                "ph": "X",
                "pid": process,
                "tid": thread,
                "ts": start,
                "dur": end - start,
                "name": STATES[population][states[stay.state]].label,
                "cat": population,
            }
