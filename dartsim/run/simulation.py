"""Simulates a run: the control plane over the modeled cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import TYPE_CHECKING

from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.observe import Instrument
from dartsim.observe.recorder import shortest_period
from dartsim.observe.status import status_text
from dartsim.run.backends import BackendContext
from dartsim.run.build import build
from dartsim.run.fast_memory import fast_memory
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.results import RunResult, run_result
from dartsim.run.resume_point import ResumePoint
from dartsim.run.sim_cluster import control_loop
from dartsim.run.system import System
from dartsim.sim import SimLoop, run_virtual
from dartsim.sim.run_virtual import SimReport
from dartsim.store.memory import MemoryStore

if TYPE_CHECKING:
    from dartsim.run.trained_model import TrainedModel


def run_simulation(
    prepared: PreparedRun,
    *,
    store: Store | None = None,
    learning: TrainedModel | None = None,
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
        system = await build_simulated(prepared, store or MemoryStore(), learning, resume_point)
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


async def build_simulated(
    prepared: PreparedRun, store: Store, learning: TrainedModel | None = None, resume_point: ResumePoint | None = None
) -> System:
    """Build the control plane over the modeled cluster, on the running simulated loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "the cluster model needs the environment of a simulated loop"
    context = BackendContext(
        prepared=prepared,
        world=loop.env,
        streams=Streams(prepared.config.run.seed, life=1 if resume_point is None else resume_point.life),
        version=0 if resume_point is None else resume_point.recovered.version,
        stack=AsyncExitStack(),  # modeled components leave nothing to close
        optional_model=learning,
        control=control_loop(prepared.config, loop.env),
    )
    system = await build(context, store, resume_point)
    loop.explain = lambda: status_text(system.recorder.component_statuses())
    return system
