"""Simulates a run: the control plane over the modeled cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.core.types import Weights
from dartsim.observe import Instrument
from dartsim.observe.recorder import shortest_period
from dartsim.observe.status import status_text
from dartsim.rollout.guarded_worker import guard
from dartsim.run.fast_memory import fast_memory
from dartsim.run.held_out_attempts import held_out_attempts
from dartsim.run.prepare import PreparedRun
from dartsim.run.results import RunResult, run_result
from dartsim.run.resume_point import ResumePoint
from dartsim.run.sim_cluster import caches, control_loop, faulty_cluster, learner, modeled_transport, provider, workers
from dartsim.run.system import System, new_recorder, success_pool
from dartsim.sim import SimLoop, run_virtual
from dartsim.sim.run_virtual import SimReport
from dartsim.store.memory import MemoryStore

if TYPE_CHECKING:
    from dartsim.run.learning import Learning


def run_simulation(
    prepared: PreparedRun,
    *,
    store: Store | None = None,
    learning: Learning | None = None,
    resume_point: ResumePoint | None = None,
    instruments: Sequence[Instrument] = (),
) -> RunResult:
    """Run a configuration in virtual time."""
    config = prepared.config
    start = 0.0 if resume_point is None else resume_point.seconds
    reports: list[SimReport] = []
    systems: list[System] = []
    interrupted = False

    async def main() -> None:
        nonlocal interrupted
        system = build(prepared, store or MemoryStore(), learning, resume_point)
        systems.append(system)
        try:
            await system.run(config.run.hours * 3600.0 - start, instruments)
        except asyncio.CancelledError:
            interrupted = True

    def advance(now: float) -> None:
        if systems:
            systems[0].recorder.time_advanced(now)

    try:
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
    except KeyboardInterrupt:  # a second one, or outside the run's task: report what ran so far
        interrupted = True
    if not systems or not reports:
        raise KeyboardInterrupt  # before anything ran
    report = reports[0]
    return run_result(
        prepared, systems[0], interrupted=interrupted, event_hash=report.event_hash, num_events=report.num_events
    )


def build(
    prepared: PreparedRun, store: Store, learning: Learning | None = None, resume_point: ResumePoint | None = None
) -> System:
    """Build the control plane over the modeled cluster, on the running simulated loop."""
    config = prepared.config
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "the cluster model needs the environment of a simulated loop"
    streams = Streams(config.run.seed, life=1 if resume_point is None else resume_point.life)
    version = 0 if resume_point is None else resume_point.recovered.version
    recorder = new_recorder(config, loop.time, first_spacing_seconds=60.0)
    loop.explain = lambda: status_text(recorder.component_statuses())
    successes = success_pool(config)
    if successes is not None and learning is not None:
        learning.fill(successes, begun=resume_point is not None)
    faults = faulty_cluster(prepared, loop.env, streams, recorder.counts)
    model, control = learning.model if learning else None, control_loop(config, loop.env)
    engines = workers(prepared, loop.env, streams, model, version=version, control=control)
    trains = faults.learner(learner(prepared, learning.learner if learning else None, control))
    return System(
        config,
        tasks=prepared.tasks,
        provider=faults.provider(provider(prepared, loop.env, streams)),
        # Replies are checked only if a model writes them; otherwise they come from our own engine model.
        engines=faults.workers(engines) if model is None else guard(faults.workers(engines), version),
        caches=caches(prepared, engines),
        learner=trains,
        held_out=held_out_attempts(prepared, trains),
        store=faults.store(store),
        recorder=recorder,
        streams=streams,
        transport=lambda pool: faults.transport(modeled_transport(config, loop.env, pool)),
        successes=successes,
        weights=Weights(version, learning.weights.source if learning else None),
        resume_point=resume_point,
    )
