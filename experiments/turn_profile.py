"""Where the events and the CPU time of a simulated turn go, by part of the system; always of the source.

python -m experiments.turn_profile            two clusters, a minute of CPU time
python -m experiments.turn_profile --quick    the same keys in seconds
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dartsim.lab.sweep import ArmRun
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from dartsim.sim.event_heap import EventHeap, LaterHandle, ReadyQueue, Timer
from dartsim.store.memory import MemoryStore
from experiments.isolated import isolated
from experiments.speed import configuration, pure_python, scaled
from experiments.study import Experiment, Figures, Options, Rows, rows_of

HOURS = {80: 3.0, 5_000: 0.1}
"""Simulated hours by number of desktops."""
QUICK_HOURS = {80: 0.2, 5_000: 0.01}

PARTS = {
    "sim/event_heap": "loop: heap, ready queue",
    "sim/loop": "loop: heap, ready queue",
    "asyncio": "tasks and futures",
    "sim/tasks": "tasks and futures",
    "core/time_limit": "deadlines",
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
    "<string>": "named tuples",
}
"""Part of the system by the beginning of a path within ``dartsim``; the first that fits."""

CALLS = {
    "SimTask.task_wakeup": "a task goes on: message arrived, reply there, action done, and steps of the attempt",
    "FluidEngine._fire": "an iteration of an engine ends: a prompt is prefilled, a last token sampled",
    "SharedCores._ring": "work on a host's cores ends",
    "_arrived": "a request arrives at its engine",
    "Deadlines._check": "a check of an attempt's deadlines",
    "TimeLimit._expire": "the time limit of a start or a tear-down",
}
"""What the commonest calls are."""

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


def profile(num_envs: int, hours: float) -> Figures:
    """Return what happens in a turn and what takes its time; two runs, because counting takes time."""
    with counted() as (scheduled, canceled):
        result = run_simulation(prepare(configuration(num_envs, hours)), store=MemoryStore())
    turns = result.recorder.hot.generated_turns
    prepared = prepare(configuration(num_envs, hours))
    with sampled() as samples:
        started = time.process_time()
        run_simulation(prepared, store=MemoryStore())
        us = (time.process_time() - started) / turns * 1e6
    total = sum(samples.values())
    return {
        "num_envs": num_envs,
        "simulated_hours": hours,
        "num_turns": turns,
        "events_per_turn": round((result.num_events or 0) / turns, 2),
        "calls": {
            name: {"scheduled": round(number / turns, 3), "canceled": round(canceled[name] / turns, 3)}
            for name, number in scheduled.most_common()
            if number >= turns / 100
        },
        "cpu_us_per_turn": round(us, 1),
        "parts_us": {part: round(us * number / total, 2) for part, number in samples.most_common()},
    }


def measure(options: Options) -> Figures:
    """Profile a small and a large cluster, each in a process of its own that runs the source."""
    sizes = QUICK_HOURS if options.quick else HOURS
    with pure_python():  # compiled functions cannot be counted
        profiles = options.sweep(
            profile_of, [ArmRun(f"{size[0]} desktops", 0, size) for size in sizes.items()], "sizes"
        )
    return {"sizes": profiles, "config": {"settings": {str(size): scaled(size, sizes[size]) for size in sizes}}}


def profile_of(size: tuple[int, float]) -> Figures:
    """Profile a cluster of (desktops, simulated hours) in a process of its own."""
    return isolated(profile, *size)


def event_rows(figures: Figures) -> Rows:
    """What happens in a turn of the small cluster, and how often."""
    small = figures["sizes"][0]
    columns = {"what happens": "{words}", "times a turn": "{scheduled:.2f}", "of these called off": "{canceled:.2f}"}
    return rows_of(columns, ({"words": CALLS.get(name, f"`{name}`"), **row} for name, row in small["calls"].items()))


def part_rows(figures: Figures) -> Rows:
    """CPU time of a turn by part of the system, in both clusters."""
    sizes = figures["sizes"]
    columns = {
        "µs per turn": "{part}",
        **{f"{row['num_envs']:,} desktops": f"{{m{row['num_envs']}:.1f}}" for row in sizes},
    }
    parts = [{"part": "all", **{f"m{row['num_envs']}": row["cpu_us_per_turn"] for row in sizes}}]
    parts += [
        {"part": part, **{f"m{row['num_envs']}": row["parts_us"].get(part) for row in sizes}}
        for part in sizes[0]["parts_us"]
    ]
    return rows_of(columns, parts)


STUDY = Experiment(
    name="turn_profile",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"turn-events": event_rows, "turn-parts": part_rows},
)

if __name__ == "__main__":
    STUDY.run()
