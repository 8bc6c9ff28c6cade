"""The modeled cluster of a configuration: desktops, engines, learner, and their faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from dartsim.config import Config
from dartsim.config.schema import FaultWindow
from dartsim.core.errors import PlugInFailed
from dartsim.core.ports import ContentModel, Learner
from dartsim.core.rng import Streams
from dartsim.core.types import Request, Version
from dartsim.core.words import clean
from dartsim.curation import CachePressure, EngineCaches
from dartsim.envs.timed import TimedProvider
from dartsim.rollout import Service
from dartsim.run.content import desktop_maker
from dartsim.run.policies import Policy
from dartsim.run.prepare import hosts
from dartsim.run.prepared_run import PreparedRun
from dartsim.sim import SimEnvironment
from dartsim.sim.control_loop import ControlLoop
from dartsim.sim.engine import FluidEngine
from dartsim.sim.faults import ClusterSize, FaultInjector, FaultyCluster, active_faults
from dartsim.sim.fitting import drifting_sampler
from dartsim.sim.host import place
from dartsim.sim.latency import Constant, Quantiles, from_spec
from dartsim.sim.learner import SimLearner, UpdateParts, VersionCounter
from dartsim.sim.measured_engines import BatchEngine, SharedEngine
from dartsim.sim.model_worker import ModelWorker
from dartsim.sim.prompts import MAX_REPLY_TOKENS, reply_lengths
from dartsim.sim.worker import DelayedService, PartialReply, SimWorker


def provider(prepared: PreparedRun, env: SimEnvironment, streams: Streams) -> TimedProvider:
    """Return the provider of the modeled desktops."""
    config = prepared.config
    return TimedProvider(
        desktop_maker(config),
        prepared.timing,
        hosts(config, env),
        num_envs=config.rollout.num_desktops,
        rng=streams.rng("desktops/latency"),
        forks=config.desktop.revert != "boot",
    )


def faulty_cluster(
    prepared: PreparedRun,
    env: SimEnvironment,
    streams: Streams,
    counts: Counter[str],
    more_windows: Sequence[FaultWindow] = (),
) -> FaultyCluster:
    """Return the injector of the configured faults into modeled components.

    Raises:
        ConfigError: If the configuration names a kind of fault that does not exist.
    """
    config = prepared.config
    faults = config.cluster.faults
    active = active_faults(faults, more_windows)
    if not active:
        return FaultyCluster()
    machines = hosts(config, env)
    number = {id(machine): index for index, machine in enumerate(machines)}
    placed = place(config.rollout.num_desktops, machines, prepared.timing.memory_gib)
    injector = FaultInjector(
        active,
        env=env,
        streams=streams,
        counts=counts,
        size=ClusterSize(desktops=config.rollout.num_desktops, hosts=len(machines), workers=config.rollout.num_engines),
        heal_at=inf if faults.heal_after_hours is None else faults.heal_after_hours * 3600.0,
    )
    return FaultyCluster(injector, [number[id(machine)] for machine in placed])


def control_loop(config: Config, env: SimEnvironment) -> ControlLoop | None:
    """Return the modeled event loop of the driver; None if it takes no time."""
    seconds = config.cluster.engine.control_seconds
    return ControlLoop(env, seconds) if seconds else None


def workers(
    prepared: PreparedRun,
    env: SimEnvironment,
    streams: Streams,
    model: ContentModel | None,
    *,
    version: Version = 0,
    control: ControlLoop | None = None,
) -> list[SimWorker]:
    """Return the modeled engines, which initially serve ``version``.

    ``model`` writes their replies, or ``policy.agent`` if there is none. Without ``control`` they get their own event
    loop, if it takes time.
    """
    config = prepared.config
    engine = config.cluster.engine
    acting = prepared.config.policy.agent.build(prepared=prepared, rng=streams.rng("policy"))
    if not type(acting).__module__.startswith("dartsim."):
        acting = _PlugInPolicy(acting)
    control = control or control_loop(config, env)
    simulated: list[SimWorker] = []
    begun: dict[int, PartialReply] = {}
    for index in range(config.rollout.num_engines):
        lent = index >= config.rollout.num_workers
        inference = _engine(prepared, env, streams, index, control)
        options: dict[str, Any] = {
            "prompts": prepared.prompts,
            "reply_tokens": _reply_tokens(config, streams.rng(f"workers/{index}/reply")),
            "reload_seconds": Constant(engine.reload_seconds).sampler(streams.rng(f"workers/{index}/reload")),
            "forgets": config.rollout.sync.resume_seconds is not None,
            "retry_seconds": config.rollout.sync.resume_seconds or 0.0,
            "control": control,
            "prepare_seconds": engine.prepare_seconds,
            "release_seconds": engine.release_seconds,
            "begun": begun,
        }
        if lent and engine.lend_seconds is not None:
            options["reload_seconds"] = _always(engine.lend_seconds)
        elif engine.transfer_seconds is not None:
            options["transfer_seconds"] = _always(engine.transfer_seconds)
        if model is not None:
            simulated.append(ModelWorker(index, inference, model=model, **options))
        else:
            simulated.append(SimWorker(index, inference, policy=acting, **options))
        simulated[-1].version = version
    return simulated


def caches(prepared: PreparedRun, engines: Sequence[SimWorker]) -> EngineCaches:
    """Return the caches of modeled engines; measured engines report theirs as empty."""
    gpu, longest = prepared.gpu, prepared.prompts.cold[prepared.config.rollout.max_turns - 1].tokens
    engine = prepared.config.cluster.engine
    longest += MAX_REPLY_TOKENS if engine.reply_tokens is None else engine.longest_reply_tokens
    inside = [worker.engine for worker in engines if isinstance(worker.engine, FluidEngine)]

    def read() -> CachePressure:
        return CachePressure(
            max((engine_model.kv_tokens / gpu.kv_capacity_tokens for engine_model in inside), default=0.0),
            sum(engine_model.num_waiting for engine_model in inside),
            sum(engine_model.num_running for engine_model in inside),
        )

    return EngineCaches(max(1, len(engines) * gpu.kv_capacity_tokens // longest), read)


def _always(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def _reply_tokens(config: Config, rng: np.random.Generator) -> Callable[[], int]:
    """Return a function that draws the number of tokens of a reply."""
    engine = config.cluster.engine
    if engine.reply_tokens is None:
        return reply_lengths(rng)
    draw, longest = from_spec(engine.reply_tokens).sampler(rng), engine.longest_reply_tokens
    return lambda: min(longest, max(1, round(draw())))


def _engine(
    prepared: PreparedRun, env: SimEnvironment, streams: Streams, index: int, control: ControlLoop | None
) -> FluidEngine | BatchEngine | SharedEngine:
    engine = prepared.config.cluster.engine
    if engine.model == "fluid":
        return FluidEngine(env, prepared.gpu)
    spread, rng = from_spec(engine.batch_spread), streams.rng(f"workers/{index}/batch")
    if engine.batch_memory and isinstance(spread, Quantiles):
        factor = drifting_sampler(spread, engine.batch_memory, rng)
    else:
        factor = spread.sampler(rng)
    fixed, each = engine.batch_seconds, engine.request_seconds
    if engine.model == "shared":
        return SharedEngine(env, alone_seconds=fixed + each, beside_seconds=each, factor=factor)
    options: dict[str, Any] = {"max_batch": engine.max_batch, "factor": factor, "control": control}
    return BatchEngine(env, batch_seconds=fixed, request_seconds=each, **options)


def modeled_transport(config: Config, env: SimEnvironment, pool: Service) -> Service:
    """Return the pool behind its modeled transport."""
    seconds = config.cluster.engine.overhead_seconds
    return DelayedService(pool, env, seconds) if seconds else pool


def learner(prepared: PreparedRun, inner: Learner | None, control: ControlLoop | None = None) -> SimLearner:
    """Return the modeled trainer, which wraps a learner that trains, if there is one."""
    speed, optimizer = prepared.config.cluster.learner, prepared.config.trainer.optimizer
    parts = speed.ranks and UpdateParts(
        ranks=speed.ranks,
        gpus=speed.gpus,
        copies=speed.copies,
        minibatches=optimizer.minibatches * optimizer.epochs,
        max_tokens=optimizer.max_tokens,
        step_seconds=speed.step_seconds,
        micro_seconds=speed.micro_seconds,
        stages=speed.stages,
        token_seconds=speed.kilotoken_seconds * speed.ranks / 1000.0,
        pair_seconds=speed.pair_seconds,
    )
    return SimLearner(
        inner or VersionCounter(),
        prepared.update_tokens,
        fixed_seconds=speed.fixed_seconds,
        kilotoken_seconds=speed.kilotoken_seconds,
        control=control,
        parts=parts or None,
    )


class _PlugInPolicy:
    """Checks that a plug-in's policy returns text; the action itself may be malformed."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    def act(self, request: Request) -> str:
        action: Any = self._inner.act(request)
        if not isinstance(action, str):
            raise PlugInFailed(
                f"{type(self._inner).__name__}.act returned {action!a:.200}, wanted the text of an action"
            )
        return clean(action)
