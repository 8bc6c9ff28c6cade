"""Where the events and the CPU time of a simulated turn go, by part of the system.

python -m experiments.turn_profile                          80 desktops, 2 simulated hours
python -m experiments.turn_profile --desktops 5000 --hours 0.1
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from dartsim.core.compiled import is_compiled
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from dartsim.sim.event_heap import EventHeap, LaterHandle, ReadyQueue, Timer
from dartsim.store.memory import MemoryStore
from experiments.speed import configuration

PARTS = {
    "sim/event_heap": "loop: heap, ready queue",
    "sim/loop": "loop: heap, ready queue",
    "asyncio": "tasks and futures",
    "sim/tasks": "tasks and futures",
    "sim/engine": "engines",
    "sim/cores": "cores",
    "sim/host": "cores",
    "sim/worker": "transport and workers",
    "rollout/service": "pool and router",
    "rollout/rout": "pool and router",
    "rollout/sync": "pool and router",
    "rollout/deadlines": "deadlines",
    "rollout": "attempts",
    "envs": "desktops",
    "sim/latency": "random draws and policy",
    "sim/surrogate": "random draws and policy",
    "observe": "recorder",
    "curation": "curation, trainer, store",
    "trainer": "curation, trainer, store",
    "store": "curation, trainer, store",
}
"""Part of the system by the beginning of a path within ``dartsim``; the first that fits."""

SAMPLE_SECONDS = 0.001


def part_of(path: str) -> str:
    """Return the part of the system that a source file belongs to."""
    inside = path.rpartition("dartsim/")[2] if "dartsim/" in path else path
    inside = "asyncio" if "/asyncio/" in path else inside.removeprefix("/")
    return next((part for start, part in PARTS.items() if inside.startswith(start)), "rest")


@contextmanager
def sampled() -> Iterator[Counter[str]]:
    """Count which part runs, at every millisecond of CPU time; what C does counts for its caller."""
    samples: Counter[str] = Counter()

    def note(number: int, frame: FrameType | None) -> None:
        samples["rest" if frame is None else part_of(frame.f_code.co_filename)] += 1

    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def counted() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Count what is scheduled and what of it is canceled, by what it calls."""
    scheduled: Counter[str] = Counter()
    canceled: Counter[str] = Counter()
    wrapped = [
        (EventHeap, "call_at", lambda self, call: scheduled.update((_name(call[1]),))),
        (EventHeap, "call_in", lambda self, call: scheduled.update((_name(call[1]),))),
        (ReadyQueue, "call_soon", lambda self, call: scheduled.update((_name(call[0]),))),
        (ReadyQueue, "call_later", lambda self, call: scheduled.update((_name(call[1]),))),
        (ReadyQueue, "call_at", lambda self, call: scheduled.update((_name(call[1]),))),
        (Timer, "cancel", lambda self, call: self._call and canceled.update((_name(self._call[0]),))),
        (LaterHandle, "cancel", lambda self, call: self._call and canceled.update((_name(self._call[0]),))),
    ]
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in wrapped]
    for (owner, name, old), (_, _, note) in zip(before, wrapped, strict=True):
        setattr(owner, name, _noting(old, note))
    try:
        yield scheduled, canceled
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


def _noting(old: Any, note: Any) -> Any:
    def method(self: Any, *call: Any, **options: Any) -> Any:
        note(self, call)
        return old(self, *call, **options)

    return method


def _name(callback: Any) -> str:
    """Return the name of a callback."""
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return str(name)


def profile(num_envs: int, hours: float) -> tuple[Table, Table]:
    """Return the tables of events and of CPU time; two runs, because counting takes time."""
    with counted() as (scheduled, canceled):
        result = run_simulation(prepare(configuration(num_envs, hours)), store=MemoryStore())
    turns = result.recorder.hot.generated_turns
    events = Table(
        "calls", "scheduled per turn", "canceled", title=f"{(result.num_events or 0) / turns:.2f} events per turn"
    )
    for name, number in scheduled.most_common():
        if number >= turns / 100:
            events.add_row(name, f"{number / turns:.2f}", f"{canceled[name] / turns:.2f}")
    prepared = prepare(configuration(num_envs, hours))
    with sampled() as samples:
        started = time.process_time()
        run_simulation(prepared, store=MemoryStore())
        us = (time.process_time() - started) / turns * 1e6
    parts = Table("part", "µs per turn", "share", title=f"{us:.1f} µs of CPU time per turn")
    total = sum(samples.values())
    for part, number in samples.most_common():
        parts.add_row(part, f"{us * number / total:.1f}", f"{number / total:.0%}")
    return events, parts


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--desktops", type=int, default=80, help="number of desktops (default 80)")
    parser.add_argument("--hours", type=float, default=2.0, help="simulated hours (default 2)")
    options = parser.parse_args()
    if is_compiled():
        sys.exit("compiled functions cannot be counted: set DARTSIM_PURE_PYTHON=1")
    for table in profile(options.desktops, options.hours):
        Console().print(table)


if __name__ == "__main__":
    main()
