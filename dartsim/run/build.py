"""Builds the control plane over the configured backends, in virtual or in real time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from dartsim.core.ports import EnvProvider, Store
from dartsim.core.types import Weights
from dartsim.observe.timings import TimedDesktops, TimedLearner, TimedWorker
from dartsim.real.ray_cluster.backend import placed, ray_desktops
from dartsim.real.screenshot_writer import ScreenshotSavingProvider
from dartsim.rollout import Service
from dartsim.rollout.guarded_worker import guard
from dartsim.run.backends import BackendContext, desktop_backend, engine_backend, learner_backend
from dartsim.run.held_out_attempts import held_out_attempts
from dartsim.run.resume_point import ResumePoint
from dartsim.run.sim_cluster import caches, faulty_cluster, modeled_transport
from dartsim.run.system import System, new_recorder, success_pool


async def build(context: BackendContext, store: Store, resume_point: ResumePoint | None = None) -> System:
    """Start desktops, engines and learner, and return the control plane over them, on the running loop."""
    prepared, config, timings = context.prepared, context.prepared.config, context.timings
    backend, virtual = config.backend, config.backend.virtual
    learning = context.learning if context.optional_model else None
    successes = success_pool(config)
    if successes is not None and learning is not None:
        learning.fill(successes, begun=resume_point is not None)
    everything = replace(context, prepared=replace(prepared, tasks=[*prepared.tasks, *prepared.held_out]))
    provider = with_screenshots(await open_desktops(everything), store, boots=backend.boots)
    tasks = prepared.tasks
    do_nothing = config.tasks.do_nothing
    if do_nothing == "auto":
        do_nothing = "report" if config.tasks.source == "osworld" else "ignore"
    # A resumed run reported this when it began.
    if backend.boots and (do_nothing == "exclude" or (do_nothing == "report" and resume_point is None)):
        from dartsim.real.desktop.tasks.playing import trainable_tasks

        tasks = await trainable_tasks(provider, tasks, exclude=do_nothing == "exclude", slots=config.rollout.num_envs)
    engines: Any = await engine_backend(config).open(context)  # modeled ones, if the cluster is
    engine_caches = caches(prepared, engines) if virtual else None
    learner: Any = learner_backend(config).open(context)
    if timings is not None:
        provider = TimedDesktops(provider, timings)
        engines = [TimedWorker(number, engine, timings) for number, engine in enumerate(engines)]
        learner = TimedLearner(learner, timings, prepared.update_tokens.of)
    # Created only now, because the minute that real engines take to start must not count as idle time.
    spacing_seconds = 60.0 if virtual else 5.0
    recorder = new_recorder(config, asyncio.get_running_loop().time, first_spacing_seconds=spacing_seconds)
    # A cluster that is not modeled throughout has no injected faults.
    faults = faulty_cluster(prepared, context.world, context.streams, recorder.counts)
    engines = faults.workers(engines)
    if learning is not None or not virtual:  # otherwise replies come from our own engine model
        engines = guard(engines, context.version)
    learner = faults.learner(learner)
    return System(
        config,
        tasks=tasks,
        provider=faults.provider(provider),
        engines=engines,
        caches=engine_caches,
        learner=learner,
        held_out=held_out_attempts(prepared, learner),
        store=faults.store(store),
        recorder=recorder,
        streams=context.streams,
        transport=lambda pool: faults.transport(transport(context, pool)),
        successes=successes,
        weights=Weights(context.version, learning.weights.source if learning else None),
        resume_point=resume_point,
    )


async def open_desktops(context: BackendContext) -> EnvProvider:
    """Return the provider of the configured desktops, on this machine or on a Ray cluster."""
    prepared, config = context.prepared, context.prepared.config
    backend = desktop_backend(config)
    if placed(config, "desktops"):
        return await context.stack.enter_async_context(ray_desktops(config, prepared.tasks, backend.open_here))
    return await backend.open(context)


def with_screenshots(provider: EnvProvider, store: Store, *, boots: bool) -> EnvProvider:
    """Return desktops whose screenshots the store keeps, written in threads if desktops boot: those are large."""
    prepare_files = store.prepare_files
    return ScreenshotSavingProvider(provider, prepare_files) if boots and prepare_files is not None else provider


def transport(context: BackendContext, pool: Service) -> Service:
    """Put the modeled transport in front of modeled engines; real engines have real latencies."""
    config = context.prepared.config
    return modeled_transport(config, context.world, pool) if config.backend.engine_backend.modeled else pool
