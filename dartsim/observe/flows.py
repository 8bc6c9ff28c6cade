"""Arrows of the Perfetto trace: from a desktop's turn to its request, to the batch that took it, to its update.

Events of the Chrome format: ``s`` begins an arrow, ``t`` leads it on, ``f`` ends it; each binds to the slice of its
track that encloses its time. Only what lies in the recorded window is drawn, so that there is a slice to bind to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dartsim.observe.recorder import Asked, Gathered, Recorder

FLOW = "turn to update"
"""Name and category of every arrow."""

MAX_TRAINED, MAX_OTHERS = 3_000, 1_000
"""Most arrows that lead to an update, and most that do not; the newest are drawn."""

UPDATES, BATCHES = 2, 3
"""Threads of the trainer's process, beside its states."""

Event = dict[str, Any]


class Processes(NamedTuple):
    """Process numbers of the populations in the trace."""

    desktops: int
    workers: int
    trainer: int


def batches_and_flows(recorder: Recorder, start: float, processes: Processes) -> Iterator[Event]:
    """Yield the slices of batches and updates, and the arrows that lead to them.

    Args:
        recorder: The measurements.
        start: Beginning of the recorded window, seconds since the start of the run.
        processes: Where the populations are.
    """
    begins = recorder.started + start
    batches = list(recorder.batches)
    # A batch is gathered from when the one before it was taken.
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


def _slices(recorder: Recorder, batch: Gathered, low: float, end: float, process: int) -> Iterator[Event]:
    trained = end if batch.trained is None else batch.trained
    spans = ((BATCHES, "batch", low, batch.leased), (UPDATES, "update", batch.leased, trained))
    for thread, name, first, last in spans:
        ts, until = _micros(recorder, first), _micros(recorder, last)
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread,
            "ts": ts,
            "dur": max(1, until - ts),  # a modelled update may take no time
            "name": f"{name} {batch.update}",
            "cat": "trainer",
            "args": {"attempts": len(batch.attempts), "finished": batch.trained is not None},
        }


def _flows(
    recorder: Recorder, shown: Mapping[int, tuple[Gathered, float]], begins: float, processes: Processes
) -> Iterator[Event]:
    """Yield the arrows of requests of the window; those of turns that no batch took end at the worker."""
    batch_of = {attempt: update for update, (batch, _) in shown.items() for attempt in batch.attempts}
    known = [asked for asked in recorder.requests or () if asked[4] > begins]
    trained = [asked for asked in known if asked[2] in batch_of]
    others = [asked for asked in known if asked[2] not in batch_of]
    for number, asked in enumerate([*trained[-MAX_TRAINED:], *others[-MAX_OTHERS:]]):
        update = batch_of.get(asked[2])
        points = _at_work(recorder, asked, processes)
        if update is not None:
            batch, low = shown[update]
            points += _at_trainer(recorder, batch, low, batch.attempts[asked[2]], processes.trainer)
        yield from _arrow(number, points, {"attempt": asked[2], "turn": asked[3]})


def _at_work(recorder: Recorder, asked: Asked, processes: Processes) -> list[Event]:
    """Return the arrow's points on the desktop and on the worker."""
    desktop, worker, _, _, when, _ = asked
    ts = _micros(recorder, when)
    return [
        {"pid": processes.desktops, "tid": desktop + 1, "ts": ts},
        {"pid": processes.workers, "tid": worker + 1, "ts": ts},
    ]


def _at_trainer(recorder: Recorder, batch: Gathered, low: float, ended: float, process: int) -> list[Event]:
    """Return its points on the batch, when the attempt ended or the batch began to be gathered, and on the update."""
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
