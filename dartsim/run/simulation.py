"""A configuration as a simulated run: the cluster model behind the control plane, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dartsim.config import Config
from dartsim.curation import MemoryStore
from dartsim.errors import ConfigError
from dartsim.ports import EnvProvider, Store
from dartsim.rng import Streams
from dartsim.rollout import Service
from dartsim.run.system import System
from dartsim.sim import SimEnvironment, SimLoop, simulate
from dartsim.sim.difficulty import TaskDifficulty, difficulties
from dartsim.sim.engine import FluidEngine
from dartsim.sim.env_profiles import PROFILES as ENV_PROFILES
from dartsim.sim.env_profiles import EnvTiming
from dartsim.sim.faults import FaultyProvider, chance
from dartsim.sim.gpu import PROFILES as GPU_PROFILES
from dartsim.sim.gpu import GpuProfile
from dartsim.sim.hops import HopService
from dartsim.sim.host import Host
from dartsim.sim.latency import Constant, from_spec
from dartsim.sim.learner import SimLearner
from dartsim.sim.prompts import PromptModel, ReplyModel
from dartsim.sim.simulate import SimReport
from dartsim.sim.surrogate import Actions, AttemptLengths, SurrogatePolicy
from dartsim.sim.worker import SimWorker
from dartsim.trace import Trace
from dartsim.trace.figures import summary
from dartsim.trace.series import by_label
from dartsim.types import Task
from envs.base import DONE
from envs.generate import generated_tasks
from envs.simulated import SOLVE_ACTION, WORK_ACTION, SimDesktop
from envs.tasks import load_suite
from envs.timed import TimedProvider

COLLECTIONS = (50_000, 20, 100)
"""Thresholds of the garbage collector's generations during a run; Python's are (700, 10, 10)."""

LATENCIES = ("start", "boot", "setup", "step", "evaluate", "teardown")
"""Latencies of a desktop that ``cluster.env.latency`` may replace."""

NUMBERS = ("memory_gib", "boot_cores", "step_cores", "settle_seconds", "evaluate_settle_seconds")
"""Numbers of a desktop's profile that it may replace."""


@dataclass(frozen=True)
class Models:
    """What a configuration names: looked up and checked before anything starts."""

    config: Config
    tasks: Sequence[Task]
    difficulties: Mapping[str, TaskDifficulty]
    lengths: AttemptLengths
    timing: EnvTiming
    gpu: GpuProfile
    prompts: PromptModel

    @property
    def peak_tokens_per_second(self) -> float:
        """Most response tokens a second that all workers together could decode with full prompts."""
        context = self.prompts.cold[self.prompts.max_images].tokens
        return self.config.rollout.num_workers * self.gpu.peak_tokens_per_second(context)


@dataclass
class Simulated:
    """A finished simulation.

    Attributes:
        trace: Its measurements, closed.
        report: Event hash and size.
        figures: ``dartsim.trace.figures.summary`` of it.
        bias: Attempts offered and trajectories trained, by labels of their task.
        interrupted: Whether it was stopped before its time.
    """

    trace: Trace
    report: SimReport
    figures: dict[str, Any]
    bias: dict[str, dict[str, dict[str, int]]]
    interrupted: bool


def models(config: Config) -> Models:
    """Look up everything that the configuration names.

    Raises:
        ConfigError: If a name is unknown or the desktops do not fit on the hosts.
        TaskFileError: If a task file cannot be used.
    """
    tasks = _tasks(config)
    surrogate = config.surrogate
    lengths = AttemptLengths(
        success_mean=surrogate.success_turns_mean,
        success_sd=surrogate.success_turns_sd,
        failure_mean=surrogate.failure_turns_mean,
        failure_sd=surrogate.failure_turns_sd,
        task_sd=surrogate.task_length_sd,
    )
    generated = config.tasks.source == "generated"
    gpu_name = config.cluster.engine.gpu
    if gpu_name not in GPU_PROFILES:
        raise ConfigError(f"cluster.engine.gpu = {gpu_name!r} is unknown; known: {', '.join(GPU_PROFILES)}")
    found = Models(
        config=config,
        tasks=tasks,
        difficulties=difficulties(
            tasks,
            Streams(config.run.seed).rng("tasks/difficulty"),
            source="deciles" if generated else surrogate.domain_results,
            mean=surrogate.mean_success if generated else None,
            length_sd=surrogate.task_length_sd,
        ),
        lengths=lengths,
        timing=env_timing(config),
        gpu=GPU_PROFILES[gpu_name],
        prompts=PromptModel(
            window=config.cluster.engine.window, num_turns=max(100, config.rollout.max_turns)
        ),
    )
    # Refused now, not when the loop runs.
    _provider(found, SimEnvironment(), Streams(0))
    return found


def env_timing(config: Config) -> EnvTiming:
    """Return the desktops' latency profile with the configuration's replacements.

    Raises:
        ConfigError: If the profile or a latency is unknown.
    """
    env = config.cluster.env
    if env.profile not in ENV_PROFILES:
        raise ConfigError(
            f"cluster.env.profile = {env.profile!r} is unknown; known: {', '.join(ENV_PROFILES)}"
        )
    changes: dict[str, Any] = {}
    for name, spec in env.latency.items():
        if name in LATENCIES:
            changes[name] = from_spec(spec)
        elif name in NUMBERS and isinstance(spec, (int, float)):
            changes[name] = float(spec)
        else:
            raise ConfigError(
                f"cluster.env.latency.{name} = {spec!r} is unknown; latencies: {', '.join(LATENCIES)}; "
                f"numbers: {', '.join(NUMBERS)}"
            )
    return replace(ENV_PROFILES[env.profile], **changes)


def run_simulation(
    found: Models,
    *,
    store: Store | None = None,
    on_start: Callable[[Trace], None] | None = None,
    on_advance: Callable[[float], None] | None = None,
    every_seconds: float = 60.0,
) -> Simulated:
    """Run a configuration in virtual time.

    Args:
        found: The configuration, with what it names.
        store: Where states of trajectories are kept; in memory by default.
        on_start: Given the trace before anything happens, so that sinks can be added and figures watched.
        on_advance: Called with the virtual time now and then; for a progress bar.
        every_seconds: Virtual seconds between two such calls.
    """
    config = found.config
    reports: list[SimReport] = []
    traces: list[Trace] = []
    interrupted = False

    async def main() -> None:
        nonlocal interrupted
        system = build(found, store or MemoryStore())
        traces.append(system.trace)
        if on_start is not None:
            on_start(system.trace)
        try:
            await system.run(config.run.hours * 3600.0)
        except asyncio.CancelledError:
            interrupted = True

    with suppress(KeyboardInterrupt), _rare_collections():
        simulate(
            main(),
            seed=config.run.seed,
            on_advance=on_advance,
            every_seconds=every_seconds,
            on_end=reports.append,
        )
    trace = traces[0]
    figures = summary(
        trace, warmup_share=config.run.warmup_share, peak_tokens_per_second=found.peak_tokens_per_second
    )
    return Simulated(trace, reports[0], figures, bias(found, trace), interrupted)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cyclic garbage rarely, and not among what existed before.

    A run makes little of it (a few objects an attempt) and keeps many objects for long (trajectories that wait
    for their update), which the default thresholds look through again and again: 10 % of the time with 80
    desktops, 30 % with 5,000.
    """
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        if not frozen:  # else somebody wants it so
            gc.unfreeze()


def build(found: Models, store: Store) -> System:
    """Build the control plane over the cluster model, on the running simulated loop."""
    config = found.config
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "the cluster model needs the environment of a simulated loop"
    streams = Streams(config.run.seed)
    trace = Trace(
        loop.time,
        num_envs=config.rollout.num_envs,
        num_workers=config.rollout.num_workers,
        max_segments=config.trace.max_segments,
        max_snapshots=config.trace.max_snapshots,
    )
    hop_seconds = config.cluster.engine.overhead_seconds

    def way(pool: Service) -> Service:
        return HopService(pool, loop.env, hop_seconds) if hop_seconds else pool

    return System(
        config,
        tasks=found.tasks,
        provider=_provider(found, loop.env, streams),
        engines=_workers(found, loop.env, streams),
        learner=_learner(config, streams),
        store=store,
        trace=trace,
        streams=streams,
        way=way,
    )


def bias(found: Models, trace: Trace) -> dict[str, dict[str, dict[str, int]]]:
    """Count attempts offered and trajectories trained, by domain and by success rate of their task."""
    counts = {"offered": trace.offered, "trained": trace.trained}
    domains = {task.id: task.domain for task in found.tasks}
    tenths = {task.id: min(9, int(found.difficulties[task.id].success_rate * 10)) for task in found.tasks}
    deciles = {task: f"{tenth / 10:.1f}-{(tenth + 1) / 10:.1f}" for task, tenth in tenths.items()}
    by_decile = {"by task success rate": by_label(counts, deciles)}
    return (
        by_decile
        if len(set(domains.values())) == 1
        else {"by domain": by_label(counts, domains), **by_decile}
    )


def _tasks(config: Config) -> Sequence[Task]:
    tasks = config.tasks
    if tasks.source == "generated":
        return generated_tasks(tasks.count)
    assert tasks.folder is not None, "checked by dartsim.config.rules"
    return load_suite(Path(tasks.folder), tasks.list_name, missing=tasks.missing).tasks


def _provider(found: Models, env: SimEnvironment, streams: Streams) -> EnvProvider:
    config = found.config
    hosts, faults = config.cluster.hosts, config.cluster.faults
    machines = [
        Host(
            env,
            cores=hosts.cores,
            memory_gib=hosts.memory_gib,
            concurrent_starts=hosts.concurrent_starts,
            name=f"host-{number}",
        )
        for number in range(hosts.count)
    ]
    provider = TimedProvider(
        lambda: SimDesktop(draw=False),
        found.timing,
        machines,
        num_envs=config.rollout.num_envs,
        rng=streams.rng("desktops/latency"),
    )
    if not (faults.start_failure_share or faults.step_failure_share or faults.score_failure_share):
        return provider  # nothing to add, and a layer around every step costs
    rng = streams.rng("desktops/faults")
    return FaultyProvider(
        provider,
        start_fails=chance(faults.start_failure_share, rng),
        breaks=chance(faults.step_failure_share, rng),
        unscored=chance(faults.score_failure_share, rng),
    )


def _workers(found: Models, env: SimEnvironment, streams: Streams) -> list[SimWorker]:
    config = found.config
    engine = config.cluster.engine
    policy = SurrogatePolicy(
        found.difficulties,
        lengths=found.lengths,
        actions=Actions(WORK_ACTION, SOLVE_ACTION, DONE),
        max_plans=2 * config.rollout.num_envs,
    )
    load_fails = chance(config.cluster.faults.load_failure_share, streams.rng("workers/faults"))
    return [
        SimWorker(
            index,
            FluidEngine(env, found.gpu),
            prompts=found.prompts,
            policy=policy,
            reply_tokens=ReplyModel().sampler(streams.rng(f"workers/{index}/reply")),
            reload_seconds=Constant(engine.reload_seconds).sampler(streams.rng(f"workers/{index}/reload")),
            load_fails=load_fails,
            prefix_cache=engine.prefix_cache,
        )
        for index in range(config.rollout.num_workers)
    ]


def _learner(config: Config, streams: Streams) -> SimLearner:
    learner, faults = config.cluster.learner, config.cluster.faults
    rng = streams.rng("learner/faults")
    return SimLearner(
        fixed_seconds=learner.fixed_seconds,
        turn_seconds=learner.turn_seconds,
        fails=chance(faults.update_failure_share, rng),
        outage_seconds=_outages(faults.outage_every_hours, faults.outage_hours, rng),
    )


def _outages(every_hours: float | None, hours: float, rng: np.random.Generator) -> Callable[[], float]:
    """Return a function that says how long the trainer is away before its next update.

    Outages come at random in loop time (a Poisson process) and strike when the next update begins.
    """
    if every_hours is None:
        return lambda: 0.0
    loop = asyncio.get_running_loop()
    due = loop.time() + rng.exponential(every_hours * 3600.0)

    def away() -> float:
        nonlocal due
        if loop.time() < due:
            return 0.0
        due = loop.time() + hours * 3600.0 + rng.exponential(every_hours * 3600.0)
        return hours * 3600.0

    return away
