"""The recorded stays of a run as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each population, one thread for each desktop, engine and the trainer, and one complete event for each
stay in a state; times are microseconds of the run's time. A stay of a desktop names its attempt. Beside the trainer's
states are its updates, each from the end of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.files import below
from dartsim.observe.metrics import read_updates
from dartsim.observe.recording import ATTEMPTS, SEGMENTS, SlotHistory, read_attempts, read_segments
from dartsim.observe.rundir import METRICS
from dartsim.observe.states import POPULATIONS

Event = dict[str, Any]

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
    played = SlotHistory(row.columns for row in read_attempts(below(folder, ATTEMPTS)).values())
    events: list[Event] = []
    for process, ((name, info), own) in enumerate(zip(POPULATIONS.items(), segments, strict=True), 1):
        events += _named("process", process, 0, len(segments) - process, info.title)
        for member in sorted({segment[0] for segment in own}):
            events += _named("thread", process, member + 1, member, f"{info.member} {member}")
        for member, state, start, end in own:
            attempt = played.attempt_at(member, (start + end) / 2) if name == "desktops" else None
            details = {} if attempt is None else {"attempt": attempt.attempt, "task": attempt.task}
            events += _slice(process, member + 1, start, end, info.states(state).info.label, name, details)
    events += _named("thread", len(segments), UPDATES, UPDATES, "updates")
    begun = 0.0
    for record in read_updates(below(folder, METRICS)):
        details = {"attempts": record.num_trajectories, "turns": record.num_turns}
        events += _slice(len(segments), UPDATES, begun, record.time, f"update {record.update}", "trainer", details)
        begun = record.time
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _named(kind: str, process: int, thread: int, order: int, name: str) -> Iterator[Event]:
    for key, value in (("name", {"name": name}), ("sort_index", {"sort_index": order})):
        yield {"ph": "M", "pid": process, "tid": thread, "name": f"{kind}_{key}", "args": value}


def _slice(
    process: int, thread: int, start: float, end: float, name: str, category: str, details: dict[str, Any]
) -> Iterator[Event]:
    """Yield a complete event, if it lasts; its borders are whole microseconds, so neighbors touch and never overlap."""
    first, last = round(start * 1e6), round(end * 1e6)
    if last > first:
        times = {"ts": first, "dur": last - first}
        yield {"ph": "X", "pid": process, "tid": thread, **times, "name": name, "cat": category, "args": details}
