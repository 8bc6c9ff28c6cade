"""What a turn costs more on Ray than in one process: the same desktop and the same model, both in one run.

    python -m experiments.ray_overhead [--quick] [--record]

A Ray of our own on the loopback, as a run with ``--ray local`` starts it: one desktop host, one worker, measured
alternately with local objects. The difference is Ray's: pickling, its processes, two hops per call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from dartsim.config import Config, load
from dartsim.config.sections.ray import RayPart
from dartsim.core.ports import AsyncEnv, PolicyWorker
from dartsim.core.types import Attempt, Observation, Request, Weights
from dartsim.envs.direct import DirectProvider
from dartsim.real.local import LocalWorker
from dartsim.real.ray_cluster.backend import make_policy, open_desktops, session
from dartsim.real.ray_cluster.desktops import DesktopHost, RayProvider
from dartsim.real.ray_cluster.parts import Part
from dartsim.real.ray_cluster.workers import RayWorker, WorkerHost
from dartsim.run.prepare import PreparedRun, prepare
from dartsim.run.sim_cluster import desktop_maker
from experiments.study import Experiment, Figures, Options, Rows, rows_of, short_commit

AT_ONCE = (1, 16, 64)
SCREENS = (112, 448)
"""Pixels a side. The larger screenshot does not fit into a message and goes through Ray's store."""

Call = Callable[[int], Awaitable[Any]]


def settings(screen: int) -> Config:
    """Return the configuration whose components are called."""
    parts = ['backend.desktops="mock"', 'backend.workers="local"', 'backend.learner="local"', 'ray.address="local"']
    return load(preset_name="tiny", overrides=[*parts, f"policy.screen={screen}", "rollout.num_workers=1"])


async def seconds_a_call(call: Call, at_once: int, calls: int) -> float:
    """Return the wall seconds per call, with ``at_once`` calls at a time."""
    left = iter(range(calls))

    async def one_after_the_other(lane: int) -> None:
        for _ in left:
            await call(lane)

    begun = time.perf_counter()
    await asyncio.gather(*(one_after_the_other(lane) for lane in range(at_once)))
    return (time.perf_counter() - begun) / calls


def stepping(desktops: list[AsyncEnv]) -> Call:
    """Return a call that has a desktop wait a moment, which ends no episode."""

    async def call(lane: int) -> None:
        await desktops[lane].step("WAIT")

    return call


def asking(worker: PolicyWorker, prepared: PreparedRun) -> Call:
    """Return a call that asks a worker for the first turn of an attempt."""
    screen = prepared.config.policy.screen
    rng = np.random.default_rng(0)
    shown = Observation(rng.integers(0, 256, (screen, screen, 3), dtype=np.uint8), prepared.tasks[0].instruction)

    async def call(lane: int) -> None:
        attempt = Attempt(lane, prepared.tasks[0], 0, lane, lane, 1, 0)
        await worker.generate(Request(attempt, 0, shown, []))

    return call


async def compared(
    inline: Call, on_ray: Call, at_once: int, calls: int, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds per call, inline and on Ray, measured alternately."""
    for call in (inline, on_ray):
        await seconds_a_call(call, at_once, 2 * at_once)  # warm
    found: dict[str, list[float]] = {"inline_ms": [], "ray_ms": []}
    for _ in range(repeats):
        found["inline_ms"].append(1e3 * await seconds_a_call(inline, at_once, calls))
        found["ray_ms"].append(1e3 * await seconds_a_call(on_ray, at_once, calls))
    return {str(at_once): found}


async def desktops_compared(prepared: PreparedRun, calls: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Compare steps of the mock desktop."""
    most = max(AT_ONCE)
    here = DirectProvider(desktop_maker(prepared.config))
    hosts = [
        Part("desktops-0", partial(DesktopHost, partial(open_desktops, prepared.config, prepared.tasks)), RayPart())
    ]
    async with RayProvider(hosts) as there:
        ways: list[Call] = []
        for provider in (here, there):
            desktops: list[AsyncEnv] = [await provider.start(slot) for slot in range(most)]
            for number, desktop in enumerate(desktops):
                await desktop.reset(prepared.tasks[number % len(prepared.tasks)], seed=number)
            ways.append(stepping(desktops))
        rows = [await compared(ways[0], ways[1], at_once, calls, repeats) for at_once in AT_ONCE]
    return {name: row for one in rows for name, row in one.items()}


async def workers_compared(prepared: PreparedRun, calls: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Compare requests to the tiny model."""
    policy: Any = make_policy(prepared.config)
    weights = Weights(0, policy.vlm.snapshot())
    here = LocalWorker(0, policy)
    part = Part("engine-0", partial(WorkerHost, 0, partial(make_policy, prepared.config)), RayPart())
    there = RayWorker(0, part, weights=weights, images=1)
    await there.start()
    try:
        ways = asking(here, prepared), asking(there, prepared)
        rows = [await compared(*ways, at_once, calls, repeats) for at_once in AT_ONCE]
    finally:
        there.close()
    return {name: row for one in rows for name, row in one.items()}


def summary(rows: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Return medians, and what Ray adds."""
    found = {}
    for name, row in rows.items():
        inline, ray = median(row["inline_ms"]), median(row["ray_ms"])
        found[name] = {
            "inline_ms": round(inline, 4),
            "ray_ms": round(ray, 4),
            "added_ms": round(ray - inline, 4),
            "ratio": round(median(r / i for r, i in zip(row["ray_ms"], row["inline_ms"], strict=True)), 3),
        }
    return found


def measure(options: Options) -> Figures:
    """Measure steps on two sizes of screen, and requests."""
    steps, asks = (128, 64) if options.quick else (384, 192)
    figures: Figures = {"config": {"at_once": list(AT_ONCE), "steps": steps, "requests": asks}}
    with session(settings(SCREENS[0])):
        for screen in SCREENS:
            prepared = prepare(settings(screen))
            rows = asyncio.run(desktops_compared(prepared, steps, options.seeds))
            figures[f"step_{screen}px"] = summary(rows)
        rows = asyncio.run(workers_compared(prepare(settings(SCREENS[0])), asks, options.seeds))
        figures[f"generate_{SCREENS[0]}px"] = summary(rows)
    return figures


RAY_CALLS = {
    "step_112px": "step of the mock desktop, 112 px (38 KB)",
    "step_448px": "the same, 448 px (0.6 MB)",
    "generate_112px": "request to the tiny model",
}


def calls_table(figures: Figures) -> Rows:
    """Milliseconds per call in one process and through Ray."""
    columns = {
        "": "{name}",
        "at once": "{at_once}",
        "in process, ms": "{inline_ms:.2f}",
        "on Ray, ms": "{ray_ms:.2f}",
        "added, ms": "{added_ms:.2f}",
        "ratio": "{ratio:.1f}",
    }
    calls = ((name, at_once, row) for call, name in RAY_CALLS.items() for at_once, row in figures[call].items())
    return rows_of(columns, ({"name": name, "at_once": at_once, **row} for name, at_once, row in calls))


def calls_added(figures: Figures) -> str:
    """Say in one sentence what Ray adds to a call."""
    added = [[row["added_ms"] for row in figures[call].values()] for call in RAY_CALLS]
    steps, requests = [*added[0], *added[1]], added[2]
    return (
        f"Ray adds {min(steps):.1f} to {max(steps):.1f} ms to a step of a desktop and {min(requests):.1f} to "
        f"{max(requests):.1f} ms to a request of a local worker (`python -m experiments.ray_overhead`, one machine, "
        f"commit {short_commit(figures)}); a real desktop's step takes 100 ms and more.\n"
    )


STUDY = Experiment(
    name="ray_overhead",
    about=str(__doc__),
    measure=measure,
    seeds=5,
    tables={"ray-overhead": calls_table, "ray-added": calls_added},
)

if __name__ == "__main__":
    STUDY.run()
