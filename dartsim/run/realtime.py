"""A configuration as a run in real time: the same control plane over parts that exist, or some of them modelled.

What is modelled here lives in a SimPy world that keeps pace with the loop's clock, beside real sockets and threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.config import Config
from dartsim.config.sections.backend import DESKTOPS
from dartsim.core.errors import ConfigError
from dartsim.core.ports import EnvProvider, Learner, PolicyWorker, Store
from dartsim.core.rng import Streams
from dartsim.core.types import Weights
from dartsim.observe import Instrument, Recorder
from dartsim.observe.recorder import report_preparing, shortest_period
from dartsim.observe.timings import TimedDesktops, TimedLearner, TimedWorker, Timings
from dartsim.real.keeping import KeepingDesktops
from dartsim.real.loop import RunLoop
from dartsim.real.ray_cluster.backend import placed, ray_desktops, ray_workers, session
from dartsim.rollout import Service
from dartsim.run import sim_cluster
from dartsim.run.prepare import PreparedRun
from dartsim.run.results import RunResult, run_result
from dartsim.run.resume_point import ResumePoint
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
    """Run a configuration by the machine's clock.

    Args:
        prepared: The configuration, with what it names.
        store: Where states of trajectories are kept; in memory by default.
        learning: The model that acts and learns; None for the surrogate policy.
        resume_point: Where the run goes on; None: it begins.
        folder: Where the run's timings are written; None writes none.
        instruments: Listen to the run.
    """
    systems: list[System] = []
    interrupted = False
    start = 0.0 if resume_point is None else resume_point.seconds

    async def main() -> None:
        nonlocal interrupted
        async with AsyncExitStack() as stack:
            stack.enter_context(session(prepared.config))
            writing = None if folder is None else Timings.open(folder, goes_on=resume_point is not None)
            timings = None if writing is None else stack.enter_context(writing)
            loop = asyncio.get_running_loop()
            if timings is not None and isinstance(loop, RunLoop):
                watching = asyncio.create_task(timings.watch(loop.idle_seconds), name="timings")
                stack.callback(watching.cancel)
            parts = RealParts(prepared, learning, stack, timings, resume_point, report_preparing(instruments))
            system = await parts.assemble(store or MemoryStore())
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
    except KeyboardInterrupt:  # a second one, or one that came where none is taken
        interrupted = True
    if not systems:
        raise KeyboardInterrupt  # before anything ran
    return run_result(prepared, systems[0], interrupted=interrupted, event_hash=None, num_events=None)


async def _tick(recorder: Recorder, period_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        recorder.time_advanced(loop.time())
        await asyncio.sleep(period_seconds)


class RealParts:
    """The parts that a configuration asks for, on the running loop; what they hold is let go by ``stack``."""

    def __init__(
        self,
        prepared: PreparedRun,
        learning: Learning | None,
        stack: AsyncExitStack,
        timings: Timings | None = None,
        resume_point: ResumePoint | None = None,
        on_step: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._prepared = prepared
        self._config: Config = prepared.config
        self._learning = learning
        self._stack = stack
        self._timings = timings
        self._resume_point = resume_point
        self._on_step = on_step
        self._streams = Streams(prepared.config.run.seed, life=1 if resume_point is None else resume_point.life)
        self._version = 0 if resume_point is None else resume_point.recovered.version

    @cached_property
    def _world(self) -> BridgeEnvironment:
        return BridgeEnvironment(asyncio.get_running_loop())

    async def assemble(self, store: Store) -> System:
        """Return the control plane over the parts."""
        successes = success_pool(self._config)
        if successes is not None and self._learning is not None:
            self._learning.fill(successes, begun=self._resume_point is not None)
        provider, workers = await self._provider(store), await self._workers()
        return System(
            self._config,
            tasks=self._prepared.tasks,
            provider=provider,
            engines=workers,
            learner=self._learner(),
            store=store,
            # Made here: engines may have taken a minute to start, which is nobody's idle time.
            recorder=new_recorder(self._config, asyncio.get_running_loop().time, first_spacing_seconds=5.0),
            streams=self._streams,
            transport=self._transport,
            successes=successes,
            weights=Weights(self._version, self._learning.newest.source if self._learning else None),
            resume_point=self._resume_point,
        )

    async def _provider(self, store: Store) -> EnvProvider:
        provider = await self._desktops()
        prepare = store.prepare_files
        if prepare is not None and self._config.backend.boots:
            provider = KeepingDesktops(provider, prepare)
        return provider if self._timings is None else TimedDesktops(provider, self._timings)

    async def _desktops(self) -> EnvProvider:
        kind = self._config.backend.desktops
        if placed(self._config, "desktops"):
            return await self._stack.enter_async_context(ray_desktops(self._config, self._prepared.tasks))
        if kind == "sim":
            return sim_cluster.provider(self._prepared, self._world, self._streams)
        on_call = self._timings.desktop if self._timings else None
        opened = DESKTOPS[kind].opener()(self._config, self._prepared.tasks, on_call)
        provider: EnvProvider = await self._stack.enter_async_context(opened)
        return provider

    async def _workers(self) -> Sequence[PolicyWorker]:
        workers = await self._engines()
        timings = self._timings
        return workers if timings is None else [TimedWorker(n, one, timings) for n, one in enumerate(workers)]

    async def _engines(self) -> Sequence[PolicyWorker]:
        kind = self._config.backend.workers
        learning = self._learning
        if kind == "sim":
            model = learning.model if learning else None
            return sim_cluster.workers(self._prepared, self._world, self._streams, model, version=self._version)
        if learning is None:
            raise ConfigError(f'backend.workers = "{kind}" serves a model: set policy.kind = "vlm"')
        if kind == "local" and placed(self._config, "workers"):
            return await self._stack.enter_async_context(ray_workers(self._config, learning.trainer.weights()))
        if kind == "local":
            local = learning.local_workers(self._config.rollout.num_workers)
            for worker in local:
                worker.on_call = None if self._timings is None else self._timings.worker
            return local
        from dartsim.real.engines.backend import vllm_workers

        served = vllm_workers(self._config, learning.vlm, version=learning.trainer.updates, on_step=self._on_step)
        return await self._stack.enter_async_context(served)

    def _learner(self) -> Learner:
        found = self._trainer()
        return found if self._timings is None else TimedLearner(found, self._timings)

    def _trainer(self) -> Learner:
        learning = self._learning
        if self._config.backend.learner == "sim" or learning is None:
            return sim_cluster.learner(self._config, learning.learner if learning else None)
        from dartsim.real.local import LocalLearner

        self._stack.callback(learning.close)
        return LocalLearner(learning.learner)

    def _transport(self, pool: Service) -> Service:
        """Put the modeled transport in front of a modeled pool; a real one takes its own time."""
        if self._config.backend.workers != "sim":
            return pool
        return sim_cluster.modeled_transport(self._config, self._world, pool)
