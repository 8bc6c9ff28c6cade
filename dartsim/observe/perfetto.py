"""The recorded window as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each population, one thread for each desktop, engine and the trainer, and one complete event for each
stay in a state; times are microseconds of simulated time since the start of the run. A desktop's wait for a reply
names the attempt, turn and engine, if the request was kept.

The newest requests have arrows (flows): from a desktop's turn to its request, to the batch that took it, to its update.
``s`` begins an arrow, ``t`` continues it, ``f`` ends it; each binds to the slice of its track that encloses its time,
so only arrows within the recorded window are drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from dartsim.observe.recorder import Recorder
from dartsim.observe.records import BatchSpan, RequestSpan
from dartsim.observe.states import POPULATIONS, ComponentState
from dartsim.observe.timeline import Stay, recorded_window

Event = dict[str, Any]

Note = tuple[int, dict[str, int]]
"""A time, microseconds since the start of the run, and arguments for the event that encloses it."""

FLOW = "turn to update"
"""Name and category of every arrow."""

MAX_TRAINED, MAX_OTHERS = 3_000, 1_000
"""Maximum number of arrows that lead to an update, and of others; the newest are drawn."""

UPDATES, BATCHES = 2, 3
"""Threads of the trainer's process, next to its states."""


def perfetto(recorder: Recorder, *, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the trace as a JSON object; it has no events if segments were not kept."""
    events: list[dict[str, Any]] = []
    window = recorded_window(recorder)
    if window is not None:
        notes_of = _request_notes(recorder)
        for order, population in enumerate(reversed(recorder.populations())):
            process = order + 1
            events += _process(process, order, POPULATIONS[population.name].title)
            for index, stays in enumerate(window.stays[population.name]):
                thread = index + 1
                events += _thread(process, thread, f"{population.name.removesuffix('s')} {index}")
                notes = notes_of.get(index, []) if population.name == "desktops" else []
                events += _events(process, thread, population.name, list(population.states), stays, notes)
        numbers = {population.name: number + 1 for number, population in enumerate(reversed(recorder.populations()))}
        events += batches_and_flows(recorder, window.start, ProcessIds(**numbers))
    return {"displayTimeUnit": "ms", "otherData": dict(meta or {}), "traceEvents": events}


def _request_notes(recorder: Recorder) -> dict[int, list[Note]]:
    """Return the requests of each desktop, in order."""
    notes_of: dict[int, list[Note]] = {}
    for desktop, engine, attempt, turn, when, _ in recorder.requests or ():
        moment = round((when - recorder.started) * 1e6)
        notes_of.setdefault(desktop, []).append((moment, {"attempt": attempt, "turn": turn, "engine": engine}))
    return {desktop: sorted(notes, key=itemgetter(0)) for desktop, notes in notes_of.items()}


def _process(process: int, order: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": order}}


def _thread(process: int, thread: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _events(
    process: int, thread: int, population: str, states: list[ComponentState], stays: list[Stay], notes: Sequence[Note]
) -> Iterator[dict[str, Any]]:
    # Borders are whole microseconds, so neighbors touch and never overlap.
    borders = [round(stay.start * 1e6) for stay in stays]
    borders += [round(stay.end * 1e6) for stay in stays[-1:]]
    for stay, (start, end) in zip(stays, pairwise(borders), strict=True):
        first = bisect_left(notes, start, key=itemgetter(0))  # a retried request was sent within the same wait
        if end > start:
            yield {
                "ph": "X",
                "pid": process,
                "tid": thread,
                "ts": start,
                "dur": end - start,
                "name": states[stay.state].info.label,
                "cat": population,
                **({"args": notes[first][1]} if first < len(notes) and notes[first][0] < end else {}),
            }


class ProcessIds(NamedTuple):
    """Process numbers of the populations in the trace."""

    desktops: int
    engines: int
    trainer: int


def batches_and_flows(recorder: Recorder, start: float, processes: ProcessIds) -> Iterator[Event]:
    """Yield the slices of batches and updates, and the arrows that lead to them."""
    begins = recorder.started + start
    batches = list(recorder.batches)
    # A batch starts gathering when the one before it was taken.
    since = [begins, *(max(batch.leased, begins) for batch in batches[:-1])]
    shown = {batch.update: (batch, low) for batch, low in zip(batches, since, strict=False) if batch.leased > low}
    if shown:
        yield from _threads(processes.trainer)
    end = recorder.clock()
    for batch, low in shown.values():
        yield from _slices(recorder, batch, low, end, processes.trainer)
    yield from _flows(recorder, shown, begins, processes)


def _threads(process: int) -> Iterator[Event]:
    for thread, name in ((UPDATES, "updates"), (BATCHES, "batches")):
        for key, args in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": thread})):
            yield {"ph": "M", "pid": process, "tid": thread, "name": key, "args": args}


def _slices(recorder: Recorder, batch: BatchSpan, low: float, end: float, process: int) -> Iterator[Event]:
    trained = end if batch.trained is None else batch.trained
    spans = ((BATCHES, "batch", low, batch.leased), (UPDATES, "update", batch.leased, trained))
    for thread, name, first, last in spans:
        ts, until = _micros(recorder, first), _micros(recorder, last)
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread,
            "ts": ts,
            "dur": max(1, until - ts),  # a modeled update may take no time
            "name": f"{name} {batch.update}",
            "cat": "trainer",
            "args": {"attempts": len(batch.attempts), "finished": batch.trained is not None},
        }


def _flows(
    recorder: Recorder, shown: Mapping[int, tuple[BatchSpan, float]], begins: float, processes: ProcessIds
) -> Iterator[Event]:
    """Yield the arrows of the window's requests; those of turns in no batch end at the engine."""
    batch_of = {attempt: update for update, (batch, _) in shown.items() for attempt in batch.attempts}
    known = [request for request in recorder.requests or () if request[4] > begins]
    trained = [request for request in known if request[2] in batch_of]
    others = [request for request in known if request[2] not in batch_of]
    for number, request in enumerate([*trained[-MAX_TRAINED:], *others[-MAX_OTHERS:]]):
        update = batch_of.get(request[2])
        points = _at_work(recorder, request, processes)
        if update is not None:
            batch, low = shown[update]
            points += _at_trainer(recorder, batch, low, batch.attempts[request[2]], processes.trainer)
        yield from _arrow(number, points, {"attempt": request[2], "turn": request[3]})


def _at_work(recorder: Recorder, request: RequestSpan, processes: ProcessIds) -> list[Event]:
    """Return the arrow's points on the desktop and on the engine."""
    desktop, engine, _, _, when, _ = request
    ts = _micros(recorder, when)
    return [
        {"pid": processes.desktops, "tid": desktop + 1, "ts": ts},
        {"pid": processes.engines, "tid": engine + 1, "ts": ts},
    ]


def _at_trainer(recorder: Recorder, batch: BatchSpan, low: float, ended: float, process: int) -> list[Event]:
    """Return the arrow's points on the batch (when the attempt ended or gathering began) and on the update."""
    joined = min(max(_micros(recorder, ended), _micros(recorder, low)), _micros(recorder, batch.leased) - 1)
    return [
        {"pid": process, "tid": BATCHES, "ts": joined},
        {"pid": process, "tid": UPDATES, "ts": _micros(recorder, batch.leased)},
    ]


def _arrow(number: int, points: list[Event], args: Mapping[str, int]) -> Iterator[Event]:
    assert all(before["ts"] <= after["ts"] for before, after in pairwise(points)), "an arrow points forward in time"
    for place, point in enumerate(points):
        kind = "s" if place == 0 else "f" if place == len(points) - 1 else "t"
        event = {"ph": kind, "id": number, "name": FLOW, "cat": FLOW, **point}
        if kind == "f":
            event["bp"] = "e"  # binds to the slice that encloses it, not to the next one
        if kind == "s":
            event["args"] = dict(args)
        yield event


def _micros(recorder: Recorder, when: float) -> int:
    return round((when - recorder.started) * 1e6)
