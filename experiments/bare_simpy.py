"""The same workload as plain SimPy processes: what the modeled cluster costs without a control plane.

Desktops are generators. They use the same hosts, the same fluid engine, the same latencies and lengths of
attempts as a simulated run, and workers reload as often. There is no curation, no weights, no trajectory, no
measurement but a count of turns, no retry, and no time-out unless asked for. So this is what a simulation
written for one study would cost, and the minimum that the models cost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from heapq import heappush
from itertools import cycle
from typing import Any

import simpy
from simpy.events import NORMAL

from dartsim.core.rng import Streams
from dartsim.core.types import Attempt
from dartsim.envs.timed import Pace
from dartsim.run.prepared_run import PreparedRun
from dartsim.sim.cores import SharedCores
from dartsim.sim.engine import EngineJob, FluidEngine
from dartsim.sim.host import mib, place
from dartsim.sim.prompts import reply_lengths
from dartsim.sim.surrogate import SurrogateActions, SurrogatePolicy
from dartsim.sim.worker import PrefixCache

Process = Generator[simpy.Event, Any, None]
Wait = Callable[[simpy.Event, float], simpy.Event]


class At(simpy.Event):
    """A SimPy event at a set time that calls a function: a timer as SimPy has it."""

    def __init__(self, env: simpy.Environment, when: float, fn: Callable[[], object]) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self._fn: Callable[[], object] | None = fn
        self.callbacks.append(self._call)
        heappush(env._queue, (when, NORMAL, next(env._eid), self))

    def _call(self, event: simpy.Event) -> None:
        if self._fn is not None:
            self._fn()

    def cancel(self) -> None:
        self._fn = None


class CoreUse(simpy.Event):
    """A job on the cores as a SimPy event: ``yield CoreUse(env, cores, 2.0, 0.5)``."""

    def __init__(self, env: simpy.Environment, cores: SharedCores, seconds: float, demand: float) -> None:
        super().__init__(env)
        cores.use(seconds, demand, self)

    def done(self) -> bool:
        """Whether the job has finished (a future's name for ``triggered``)."""
        return self.triggered

    def set_result(self, result: None) -> None:
        """Finish the job (a future's name for ``succeed``)."""
        self.succeed(result)


class EventEnvironment(simpy.Environment):
    """A plain SimPy environment with what the cluster's models ask of one, made of events."""

    def call_at(self, when: float, fn: Callable[[], object]) -> At:
        return At(self, when, fn)

    def delay(self, seconds: float) -> float:
        return seconds


class Machine:
    """Cores, memory and start slots of a host."""

    def __init__(self, env: Any, cores: float, memory_gib: float, concurrent_starts: int) -> None:
        self.name = "host"
        self.memory_gib = memory_gib
        self.cores = SharedCores(env, cores)
        self.memory = simpy.Container(env, capacity=mib(memory_gib), init=mib(memory_gib))
        self.starts = simpy.Resource(env, capacity=concurrent_starts)

    def fits(self, memory_gib: float) -> int:
        return int(self.memory.capacity) // mib(memory_gib)


class Gpu:
    """A worker: an engine and the sessions whose prompts it still has."""

    def __init__(self, engine: FluidEngine, cache: PrefixCache, reply_tokens: Callable[[], int]) -> None:
        self.engine = engine
        self.cache = cache
        self.reply_tokens = reply_tokens


@dataclass
class BareCluster:
    """The cluster of a configuration as SimPy processes."""

    prepared: PreparedRun
    timeouts: bool = False
    sync_seconds: float = 1_270.0

    def __post_init__(self) -> None:
        config = self.prepared.config
        self.env = EventEnvironment()
        self.num_turns = 0
        self._streams = streams = Streams(config.run.seed)
        self._limits = config.rollout.limits
        self._wait: Wait = self._any_of if self.timeouts else self._event_alone
        hosts = config.cluster.hosts
        self._machines: list[Any] = [
            Machine(self.env, hosts.cores, hosts.memory_gib, hosts.concurrent_starts) for _ in range(hosts.count)
        ]
        prompts = self.prepared.prompts
        held = self.prepared.gpu.kv_capacity_tokens // prompts.cold[prompts.max_images].tokens
        env: Any = self.env  # the engine wants a SimEnvironment, and uses no more of it than this one has
        self._gpus = [
            Gpu(
                FluidEngine(env, self.prepared.gpu),
                PrefixCache(held),
                reply_lengths(streams.rng(f"workers/{index}/reply")),
            )
            for index in range(config.rollout.num_workers)
        ]
        self._up = list(self._gpus)
        self._next_gpu = 0
        self.num_attempts = 0
        self._policy = SurrogatePolicy(
            self.prepared.difficulties,
            config=self.prepared.config.surrogate,
            actions=SurrogateActions("", "", ""),
            max_plans=1,
        )

    def run(self) -> int:
        """Run for the configured time and return the turns taken."""
        config, env = self.prepared.config, self.env
        tasks = cycle(self.prepared.tasks)
        size = self.prepared.timing.memory_gib
        rngs = self._streams.rng("desktops/latency").spawn(len(self._machines))
        paces = {id(m): Pace(self.prepared.timing, rng) for m, rng in zip(self._machines, rngs, strict=True)}
        for host in place(config.rollout.num_envs, self._machines, size):
            env.process(self._desktop(host, paces[id(host)], tasks))
        slice_size = config.rollout.sync.workers_at_a_time
        if slice_size == "all" or slice_size >= len(self._gpus):
            raise ValueError(f"some worker must be up at any time; a slice has {slice_size} of {len(self._gpus)}")
        env.process(self._reloads(slice_size))
        env.run(config.run.hours * 3600.0)
        return self.num_turns

    def _desktop(self, host: Any, pace: Pace, tasks: cycle[Any]) -> Process:
        env, cores, limits, wait = self.env, host.cores, self._limits, self._wait
        hop_seconds = self.prepared.config.cluster.engine.overhead_seconds
        turn_limit = self.prepared.config.rollout.max_turns
        while True:
            self.num_attempts = number = self.num_attempts + 1
            attempt = Attempt(number, next(tasks), 0, 0, number * 0x9E3779B97F4A7C15 % 2**63, turn_limit, 0)
            num_turns = min(self._policy.plan(attempt).num_turns, turn_limit)
            yield host.memory.get(pace.memory_mib)
            with host.starts.request() as slot:
                yield slot
                yield wait(CoreUse(self.env, cores, pace.start(), pace.boot_cores), limits.start_seconds)
            yield wait(CoreUse(self.env, cores, pace.boot(), pace.boot_cores), limits.start_seconds)
            yield wait(CoreUse(self.env, cores, pace.setup(), pace.boot_cores), limits.setup_seconds)
            for turn in range(num_turns):
                yield env.timeout(hop_seconds)
                while True:
                    reply = self._ask(number, turn)
                    yield wait(reply, limits.request_seconds)
                    if reply.value:  # else the worker was restarted
                        break
                self.num_turns += 1
                yield wait(CoreUse(self.env, cores, pace.step(), pace.step_cores), limits.step_seconds)
            yield wait(CoreUse(self.env, cores, pace.evaluate(), pace.step_cores), limits.evaluate_seconds)
            yield wait(CoreUse(self.env, cores, pace.teardown(), 0.0), limits.close_seconds)
            yield host.memory.put(pace.memory_mib)

    def _ask(self, session: int, turn: int) -> simpy.Event:
        """Send a request to the next worker in turn: no rule could cost less."""
        up = self._up
        self._next_gpu = number = (self._next_gpu + 1) % len(up)
        gpu = up[number]
        table = self.prepared.prompts.warm if gpu.cache.use(session, turn) else self.prepared.prompts.cold
        prompt = table[turn]
        reply = self.env.event()
        gpu.engine.submit(prompt.tokens, prompt.cached_tokens, prompt.images, gpu.reply_tokens(), _answer, reply)
        return reply

    def _reloads(self, slice_size: int) -> Process:
        """Take the workers down slice by slice, as often as new weights come."""
        reload_seconds = self.prepared.config.cluster.engine.reload_seconds
        starts = range(0, len(self._gpus), slice_size)
        while True:
            yield self.env.timeout(max(0.0, self.sync_seconds - len(starts) * reload_seconds))
            for start in starts:
                down = self._gpus[start : start + slice_size]
                self._up = [gpu for gpu in self._gpus if gpu not in down]
                for gpu in down:
                    for job in gpu.engine.abort_all():
                        job.payload.succeed(False)
                yield self.env.timeout(reload_seconds)
                for gpu in down:
                    gpu.cache.clear()
                self._up = list(self._gpus)

    def _event_alone(self, event: simpy.Event, limit_seconds: float) -> simpy.Event:
        return event

    def _any_of(self, event: simpy.Event, limit_seconds: float) -> simpy.Event:
        return simpy.AnyOf(self.env, (event, self.env.timeout(limit_seconds)))


def _answer(job: EngineJob) -> None:
    job.payload.succeed(True)
