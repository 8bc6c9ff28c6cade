"""The recorded stays of a run as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each population, one thread for each desktop, engine and the trainer, and one complete event for each
stay in a state; times are microseconds of the run's time. A stay of a desktop names its attempt. Beside the trainer's
states are its updates, each from the end of the one before.

The newest trained attempts have arrows (flows), from their last stay to their update: ``s`` begins an arrow, ``f`` ends
it; both bind to the slice of their track that encloses their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.files import below
from dartsim.observe.metrics import read_updates
from dartsim.observe.recording import ATTEMPTS, SEGMENTS, AttemptColumns, SlotHistory, read_attempts, read_segments
from dartsim.observe.rundir import METRICS
from dartsim.observe.states import POPULATIONS

Event = dict[str, Any]

FLOW = "attempt to update"
"""Name and category of every arrow."""
MAX_FLOWS = 4_000
"""Maximum number of arrows; the newest are drawn."""
UPDATES = 2
"""Thread of the trainer's process, next to its states."""


def perfetto(folder: Path) -> dict[str, Any]:
    """Return the trace of a run's folder as a JSON object.

    Raises:
        ConfigError: If no stays were recorded.
    """
    segments = [own.tolist() for own in read_segments(below(folder, SEGMENTS), until=inf)]
    if not any(segments):
        raise ConfigError(f"{folder} has no recorded stays to trace ({SEGMENTS}; run.max_segments)")
    attempts = read_attempts(below(folder, ATTEMPTS))
    played = SlotHistory(row.columns for row in attempts.values())
    events: list[Event] = []
    last: dict[int, tuple[AttemptColumns, int]] = {}
    for process, ((name, info), own) in enumerate(zip(POPULATIONS.items(), segments, strict=True), 1):
        events += _named("process", process, 0, len(segments) - process, info.title)
        for member in sorted({segment[0] for segment in own}):
            events += _named("thread", process, member + 1, member, f"{info.member} {member}")
        for member, state, start, end in own:
            attempt = played.attempt_at(member, (start + end) / 2) if name == "desktops" else None
            if attempt is not None:
                last[attempt.attempt] = attempt, _micros(start)
            details = {} if attempt is None else {"attempt": attempt.attempt, "task": attempt.task}
            if _micros(end) > _micros(start):
                events.append(_slice(process, member + 1, start, end, info.states(state).info.label, name, details))
    begun, updates = 0.0, {}
    events += _named("thread", len(segments), UPDATES, UPDATES, "updates")
    for record in read_updates(below(folder, METRICS)):
        if record.time > begun:
            details = {"attempts": record.num_trajectories, "turns": record.num_turns}
            events.append(
                _slice(len(segments), UPDATES, begun, record.time, f"update {record.update}", "trainer", details)
            )
            updates[record.update] = _micros(record.time) - 1
        begun = record.time
    trained = [(*last[number], updates.get(row.update or 0)) for number, row in attempts.items() if number in last]
    number = count()
    for own_attempt, left, taken in trained[-MAX_FLOWS:]:
        if taken is not None and left <= taken:
            events += _arrow(next(number), own_attempt, left, taken, len(segments))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _named(kind: str, process: int, thread: int, order: int, name: str) -> Iterator[Event]:
    for key, value in (("name", {"name": name}), ("sort_index", {"sort_index": order})):
        yield {"ph": "M", "pid": process, "tid": thread, "name": f"{kind}_{key}", "args": value}


def _slice(
    process: int, thread: int, start: float, end: float, name: str, category: str, details: dict[str, Any]
) -> Event:
    """Return a complete event; its borders are whole microseconds, so neighbors touch and never overlap."""
    times = {"ts": _micros(start), "dur": _micros(end) - _micros(start)}
    return {"ph": "X", "pid": process, "tid": thread, **times, "name": name, "cat": category, "args": details}


def _arrow(number: int, attempt: AttemptColumns, left: int, taken: int, trainer: int) -> Iterator[Event]:
    event = {"id": number, "name": FLOW, "cat": FLOW}
    yield {**event, "ph": "s", "pid": 1, "tid": (attempt.slot or 0) + 1, "ts": left}
    yield {**event, "ph": "f", "bp": "e", "pid": trainer, "tid": UPDATES, "ts": taken}  # binds to what encloses it


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
