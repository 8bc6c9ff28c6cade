"""Runs in real time: the same control plane over components that are real or partly modeled.

Modeled components run in a SimPy environment paced by the loop's clock, beside real sockets and threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.observe import Instrument, Recorder
from dartsim.observe.recorder import report_preparing, shortest_period
from dartsim.observe.timings import Timings
from dartsim.real.loop import RunLoop
from dartsim.real.processes import share_heap
from dartsim.real.ray_cluster.backend import session
from dartsim.run.backends import BackendContext
from dartsim.run.build import build
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.results import RunResult, run_result
from dartsim.run.resume_point import ResumePoint
from dartsim.run.system import System
from dartsim.sim.bridge import BridgeEnvironment
from dartsim.store.memory import MemoryStore

if TYPE_CHECKING:
    from dartsim.run.trained_model import TrainedModel

TICK_SECONDS = 0.2
"""Longest time between two calls of instruments' ``time_advanced``, for progress displays."""


def run_realtime(
    prepared: PreparedRun,
    *,
    store: Store | None = None,
    learning: TrainedModel | None = None,
    resume_point: ResumePoint | None = None,
    folder: Path | None = None,
    instruments: Sequence[Instrument] = (),
) -> RunResult:
    """Run a configuration in real time."""
    share_heap()
    systems: list[System] = []
    interrupted = False
    start = 0.0 if resume_point is None else resume_point.seconds

    async def main() -> None:
        nonlocal interrupted
        async with AsyncExitStack() as stack:
            stack.enter_context(session(prepared.config))
            writing = None if folder is None else Timings.open(folder, resumed=resume_point is not None)
            timings = None if writing is None else stack.enter_context(writing)
            loop = asyncio.get_running_loop()
            if timings is not None and isinstance(loop, RunLoop):
                watching = asyncio.create_task(timings.watch(loop.idle_seconds), name="timings")
                stack.callback(watching.cancel)
            context = BackendContext(
                prepared=prepared,
                world=BridgeEnvironment(loop),
                streams=Streams(prepared.config.run.seed, life=1 if resume_point is None else resume_point.life),
                version=0 if resume_point is None else resume_point.recovered.version,
                stack=stack,
                optional_model=learning,
                timings=timings,
                folder=folder,
                on_step=report_preparing(instruments),
            )
            system = await build(context, store or MemoryStore(), resume_point)
            systems.append(system)
            period = min(shortest_period(instruments), TICK_SECONDS)
            ticker = asyncio.create_task(_tick(system.recorder, period), name="instruments")
            stack.callback(ticker.cancel)
            listening = instruments if timings is None else [timings, *instruments]
            try:
                await system.run(prepared.config.run.hours * 3600.0 - start, listening)
            except asyncio.CancelledError:
                interrupted = True

    try:
        with asyncio.Runner(loop_factory=partial(RunLoop, start)) as runner:
            runner.run(main())
    except KeyboardInterrupt:  # a second one, or outside the run's task
        interrupted = True
    if not systems:
        raise KeyboardInterrupt  # before anything ran
    return run_result(prepared, systems[0], interrupted=interrupted, event_hash=None, num_events=None)


async def _tick(recorder: Recorder, period_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        recorder.time_advanced(loop.time())
        await asyncio.sleep(period_seconds)
