"""The recorded window as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each population, one thread for each desktop, worker and the trainer, and one complete event
for each stay in a state; times are microseconds of simulated time since the start of the run. A desktop's wait for a
reply names attempt, turn and worker, where the request is among those kept. Of the newest there are arrows, from the
turn to the request, the batch and the update (``dartsim.observe.flows``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from dartsim.observe.flows import Processes, batches_and_flows
from dartsim.observe.recorder import Recorder
from dartsim.observe.styles import POPULATIONS, STATES
from dartsim.observe.timeline import Stay, recorded_window

Told = tuple[int, dict[str, int]]
"""A moment, microseconds since the start of the run, and what is told of it."""


def perfetto(recorder: Recorder, *, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the trace as a JSON object; it has no events if segments were not kept."""
    events: list[dict[str, Any]] = []
    window = recorded_window(recorder)
    if window is not None:
        asked = _asked(recorder)
        for order, population in enumerate(reversed(recorder.populations())):
            process = order + 1
            states = [state.name.lower() for state in population.states]
            events += _process(process, order, POPULATIONS[population.name])
            for index, stays in enumerate(window.stays[population.name]):
                thread = index + 1
                events += _thread(process, thread, f"{population.name.removesuffix('s')} {index}")
                told = asked.get(index, []) if population.name == "desktops" else []
                events += _events(process, thread, population.name, states, stays, told)
        numbers = {population.name: number + 1 for number, population in enumerate(reversed(recorder.populations()))}
        events += batches_and_flows(recorder, window.start, Processes(**numbers))
    return {"displayTimeUnit": "ms", "otherData": dict(meta or {}), "traceEvents": events}


def _asked(recorder: Recorder) -> dict[int, list[Told]]:
    """Return what each desktop asked, and the microsecond at which it did, in order."""
    found: dict[int, list[Told]] = {}
    for desktop, worker, attempt, turn, when, _ in recorder.requests or ():
        moment = round((when - recorder.started) * 1e6)
        found.setdefault(desktop, []).append((moment, {"attempt": attempt, "turn": turn, "worker": worker}))
    return {desktop: sorted(told, key=itemgetter(0)) for desktop, told in found.items()}


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
    process: int,
    thread: int,
    population: str,
    states: list[str],
    stays: list[Stay],
    told: Sequence[Told],
) -> Iterator[dict[str, Any]]:
    # Whole microseconds at the borders: neighbours touch and never overlap.
    borders = [round(stay.start * 1e6) for stay in stays]
    borders += [round(stay.end * 1e6) for stay in stays[-1:]]
    for stay, (start, end) in zip(stays, pairwise(borders), strict=True):
        first = bisect_left(told, start, key=itemgetter(0))  # one asked again elsewhere asks within its wait
        if end > start:
            yield {
                "ph": "X",
                "pid": process,
                "tid": thread,
                "ts": start,
                "dur": end - start,
                "name": STATES[population][states[stay.state]].label,
                "cat": population,
                **({"args": told[first][1]} if first < len(told) and told[first][0] < end else {}),
            }
