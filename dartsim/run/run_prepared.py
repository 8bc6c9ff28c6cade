"""``run_prepared``: a run, or one life of it, from its start or resume point to its end, in virtual or in real time.

In real time, modeled components run in a SimPy environment paced by the loop's clock, beside real sockets and threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.observe import Instrument, Recorder
from dartsim.observe.recorder import report_preparing, shortest_period
from dartsim.observe.status import waiting, waiting_text
from dartsim.observe.timings import Timings
from dartsim.real.loop import RunLoop
from dartsim.real.processes import share_heap
from dartsim.real.ray_cluster.backend import session
from dartsim.run.backends import BackendContext
from dartsim.run.build import build
from dartsim.run.fast_memory import fast_memory
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.results import RunResult, run_result
from dartsim.run.resume_point import ResumePoint
from dartsim.run.sim_cluster import control_loop
from dartsim.run.system import System
from dartsim.sim import SimLoop, run_virtual
from dartsim.sim.bridge import BridgeEnvironment
from dartsim.sim.run_virtual import SimReport
from dartsim.store.memory import MemoryStore

if TYPE_CHECKING:
    from dartsim.run.model import TrainedModel

TICK_SECONDS = 0.2
"""Longest time between two calls of instruments' ``time_advanced`` in real time, for progress displays."""


def run_prepared(
    prepared: PreparedRun,
    *,
    store: Store | None = None,
    learning: TrainedModel | None = None,
    resume_point: ResumePoint | None = None,
    folder: Path | None = None,
    instruments: Sequence[Instrument] = (),
) -> RunResult:
    """Run a configuration; in real time, its timings are written into ``folder``."""
    config, virtual = prepared.config, prepared.config.backend.virtual
    start = 0.0 if resume_point is None else resume_point.seconds
    reports: list[SimReport] = []
    systems: list[System] = []
    interrupted = False

    async def main() -> None:
        nonlocal interrupted
        async with AsyncExitStack() as stack:
            stack.enter_context(session(config))
            timings = None if virtual or folder is None else _timings(folder, stack, resumed=resume_point is not None)
            system = await build_here(
                prepared,
                store or MemoryStore(),
                stack,
                learning=learning,
                resume_point=resume_point,
                timings=timings,
                folder=folder,
                on_step=report_preparing(instruments),
            )
            systems.append(system)
            if not virtual:
                period = min(shortest_period(instruments), TICK_SECONDS)
                ticker = asyncio.create_task(_tick(system.recorder, period), name="instruments")
                stack.callback(ticker.cancel)
            listening = instruments if timings is None else [timings, *instruments]
            try:
                await system.run(config.run.hours * 3600.0 - start, listening)
            except asyncio.CancelledError:
                interrupted = True

    def advance(now: float) -> None:
        if systems:
            systems[0].recorder.time_advanced(now)

    try:
        if virtual:
            # A model that learns in this process may leave cycles that hold large tensors.
            with fast_memory() if learning is None else nullcontext():
                run_virtual(
                    main(),
                    seed=config.run.seed,
                    start=start,
                    on_advance=advance,
                    every_seconds=shortest_period(instruments),
                    on_end=reports.append,
                )
        else:
            share_heap()
            with asyncio.Runner(loop_factory=partial(RunLoop, start)) as runner:
                runner.run(main())
    except KeyboardInterrupt:  # a second one, or outside the run's task: report what ran so far
        interrupted = True
    if not systems or (virtual and not reports):
        raise KeyboardInterrupt  # before anything ran
    return run_result(prepared, systems[0], interrupted=interrupted, report=reports[0] if reports else None)


async def build_here(
    prepared: PreparedRun,
    store: Store,
    stack: AsyncExitStack | None = None,
    *,
    learning: TrainedModel | None = None,
    resume_point: ResumePoint | None = None,
    timings: Timings | None = None,
    folder: Path | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> System:
    """Build the control plane on the running loop, simulated or real.

    ``stack`` closes what is real; modeled components leave nothing to close.
    """
    loop = asyncio.get_running_loop()
    world = loop.env if isinstance(loop, SimLoop) else BridgeEnvironment(loop)
    context = BackendContext(
        prepared=prepared,
        world=world,
        streams=Streams(prepared.config.run.seed, life=1 if resume_point is None else resume_point.life),
        version=0 if resume_point is None else resume_point.recovered.version,
        stack=stack or AsyncExitStack(),
        optional_model=learning,
        timings=timings,
        folder=folder,
        control=control_loop(prepared.config, world),
        on_step=on_step,
    )
    system = await build(context, store, resume_point)
    if isinstance(loop, SimLoop):
        statuses = system.recorder.component_statuses
        loop.explain = lambda: waiting_text(waiting(status.as_json() for status in statuses()))
    return system


def _timings(folder: Path, stack: AsyncExitStack, *, resumed: bool) -> Timings:
    """Return what writes how long calls took, and how long the loop was idle."""
    timings = stack.enter_context(Timings.open(folder, resumed=resumed))
    loop = asyncio.get_running_loop()
    if isinstance(loop, RunLoop):
        watching = asyncio.create_task(timings.watch(loop.idle_seconds), name="timings")
        stack.callback(watching.cancel)
    return timings


async def _tick(recorder: Recorder, period_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        recorder.time_advanced(loop.time())
        await asyncio.sleep(period_seconds)
