"""Runs in real time: the same control plane over components that are real or partly modeled.

Modeled components run in a SimPy environment paced by the loop's clock, beside real sockets and threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.core.ports import EnvProvider, Store
from dartsim.core.rng import Streams
from dartsim.core.types import Weights
from dartsim.observe import Instrument, Recorder
from dartsim.observe.recorder import report_preparing, shortest_period
from dartsim.observe.timings import TimedDesktops, TimedLearner, TimedWorker, Timings
from dartsim.real.loop import RunLoop
from dartsim.real.ray_cluster.backend import placed, ray_desktops, session
from dartsim.real.screenshot_writer import ScreenshotSavingProvider
from dartsim.rollout import Service
from dartsim.rollout.guarded_worker import guard
from dartsim.run.backends import BackendContext
from dartsim.run.held_out_attempts import held_out_attempts
from dartsim.run.prepare import PreparedRun
from dartsim.run.results import RunResult, run_result
from dartsim.run.resume_point import ResumePoint
from dartsim.run.sim_cluster import modeled_transport
from dartsim.run.system import System, new_recorder, success_pool
from dartsim.sim.bridge import BridgeEnvironment
from dartsim.store.memory import MemoryStore

if TYPE_CHECKING:
    from dartsim.run.learning import Learning

TICK_SECONDS = 0.2
"""Longest time between two calls of instruments' ``time_advanced``, for progress displays."""


def run_realtime(
    prepared: PreparedRun,
    *,
    store: Store | None = None,
    learning: Learning | None = None,
    resume_point: ResumePoint | None = None,
    folder: Path | None = None,
    instruments: Sequence[Instrument] = (),
) -> RunResult:
    """Run a configuration in real time."""
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


async def build(context: BackendContext, store: Store, resume_point: ResumePoint | None) -> System:
    """Build the control plane over the configured backends, on the running loop."""
    prepared, config, timings = context.prepared, context.prepared.config, context.timings
    learning = context.learning if context.optional_model else None
    successes = success_pool(config)
    if successes is not None and learning is not None:
        learning.fill(successes, begun=resume_point is not None)
    everything = replace(context, prepared=replace(prepared, tasks=[*prepared.tasks, *prepared.held_out]))
    provider = with_screenshots(await open_desktops(everything), store, boots=config.backend.boots)
    tasks = prepared.tasks
    do_nothing = config.tasks.do_nothing
    if do_nothing == "auto":
        do_nothing = "report" if config.tasks.source == "osworld" else "ignore"
    # A resumed run reported this when it began.
    if config.backend.boots and (do_nothing == "exclude" or (do_nothing == "report" and resume_point is None)):
        from dartsim.real.desktop.tasks.playing import trainable_tasks

        tasks = await trainable_tasks(provider, tasks, exclude=do_nothing == "exclude", slots=config.rollout.num_envs)
    engines = await config.backend.engine_backend.open(context)
    learner = config.backend.learner_backend.open(context)
    if timings is not None:
        provider = TimedDesktops(provider, timings)
        engines = [TimedWorker(number, engine, timings) for number, engine in enumerate(engines)]
        learner = TimedLearner(learner, timings, prepared.update_tokens.of)
    held_out = held_out_attempts(prepared, learner)
    return System(
        config,
        tasks=tasks,
        provider=provider,
        engines=guard(engines, context.version),
        learner=learner,
        store=store,
        # Created only now, because the minute that engines take to start must not count as idle time.
        recorder=new_recorder(config, asyncio.get_running_loop().time, first_spacing_seconds=5.0),
        streams=context.streams,
        transport=partial(transport, context),
        successes=successes,
        weights=Weights(context.version, learning.weights.source if learning else None),
        resume_point=resume_point,
        held_out=held_out,
    )


async def open_desktops(context: BackendContext) -> EnvProvider:
    """Return the provider of the configured desktops, on this machine or on a Ray cluster."""
    prepared, config = context.prepared, context.prepared.config
    if placed(config, "desktops"):
        return await context.stack.enter_async_context(ray_desktops(config, prepared.tasks))
    return await config.backend.desktop_backend.open(context)


def with_screenshots(provider: EnvProvider, store: Store, *, boots: bool) -> EnvProvider:
    """Return desktops whose screenshots the store keeps, written in threads if desktops boot: those are large."""
    prepare_files = store.prepare_files
    return ScreenshotSavingProvider(provider, prepare_files) if boots and prepare_files is not None else provider


def transport(context: BackendContext, pool: Service) -> Service:
    """Put the modeled transport in front of modeled engines; real engines have real latencies."""
    config = context.prepared.config
    return modeled_transport(config, context.world, pool) if config.backend.engine_backend.modeled else pool
