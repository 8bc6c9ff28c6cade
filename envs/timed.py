"""``TimedEnv``: any gymnasium GUI environment on the loop's time.

The gymnasium environment decides what happens. An ``EnvTiming`` decides how long it takes on an idle host, and the
host's shared cores, start slots and memory how much longer under load. Content is computed when the latency has passed.
A canceled call releases its cores and start slot; a canceled start also its memory, which a running desktop keeps until
``close``. This module is compiled in wheels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.copied_states import HostStates, TimedStates
from dartsim.envs.direct import DirectEnv
from dartsim.sim.env_profiles import EnvTiming
from dartsim.sim.host import SimHost, mib, place

logger = logging.getLogger(__name__)

MakeEnv = Callable[[], "gymnasium.Env[Any, str]"]


class TimedEnv(DirectEnv):
    """One running desktop on the loop's time.

    States: *ready* (booted, unused), *used* (has begun an attempt), *closed*.

    Args:
        env: As ``desktop`` of ``DirectEnv``.
        host: Its host, on which its memory is already reserved.
        pace: Draws the durations of its calls.
        states: The host's saved states, if it saves its state.
    """

    def __init__(
        self, env: gymnasium.Env[Any, str], host: SimHost, pace: Pace, states: HostStates | None = None
    ) -> None:
        super().__init__(env)
        if states is not None:
            self.snapshots = TimedStates(self._desktop, states, self)
        self.host = host
        self._pace = pace
        self._cores = host.cores
        self._used = False
        self._closed = False

    async def reset(self, task: Task, *, seed: int) -> Observation:
        pace = self._pace
        if self._used and pace.timing.fresh_per_attempt:
            await self.host.run(pace.teardown(), 0.0)
            await pace.boot_on(self.host)
        self._used = True
        if self.snapshots is None or not self.snapshots.set_up:
            await self.host.run(pace.setup(), pace.boot_cores)
            if pace.timing.settle_seconds:
                await self.host.idle(pace.timing.settle_seconds)
        return self.reset_now(task, seed)

    async def revert(self) -> None:
        """Wait as long as the desktop takes to return to a saved state.

        Raises:
            EnvBroken: If the restore fails.
        """
        await self.host.run(self._pace.restore(), self._pace.boot_cores)
        self._used = False
        if self._pace.restore_fails():
            raise EnvBroken(f"a desktop on {self.host.name} did not return to its saved state")

    async def save(self) -> int:
        """Wait as long as saving the desktop's state takes; return its size, bytes."""
        await self.host.run(self._pace.save(), self._pace.boot_cores)
        return int(self._pace.timing.snapshot_mib * 2**20)

    async def step(self, action: str) -> StepResult:
        pace = self._pace
        await self._cores.run(pace.step(), pace.step_cores)
        return self.step_now(action)

    async def evaluate(self) -> float:
        pace = self._pace
        if pace.timing.evaluate_settle_seconds:
            await self.host.idle(pace.timing.evaluate_settle_seconds)
        await self.host.run(pace.evaluate(), pace.step_cores)
        return self.evaluate_now()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self.host.run(self._pace.teardown(), 0.0)
        finally:
            self.host.memory.give_back(self._pace.memory_mib)
            try:
                self._desktop.close()
            except Exception:
                logger.warning("a desktop failed in close; its host's memory is free again", exc_info=True)


class Pace:
    """A timing profile with the samplers of one host's desktops, each with its own random stream.

    Demands are multiples of 1/1024 of a core, so that they add up exactly.
    """

    def __init__(self, timing: EnvTiming, rng: np.random.Generator) -> None:
        latencies = (timing.start, timing.boot, timing.setup, timing.step, timing.evaluate, timing.teardown)
        *streams, saving, restoring, failing = rng.spawn(9)
        samplers = [latency.sampler(stream) for latency, stream in zip(latencies, streams, strict=True)]
        self.timing = timing
        self.start, self.boot, self.setup, self.step, self.evaluate, self.teardown = samplers
        self.save, self.restore = timing.save.sampler(saving), timing.restore.sampler(restoring)
        self._failing = failing
        self.boot_cores = round(timing.boot_cores * 1024) / 1024
        self.step_cores = round(timing.step_cores * 1024) / 1024
        self.memory_mib = mib(timing.memory_gib)

    def restore_fails(self) -> bool:
        """Draw whether a restore fails."""
        return bool(self._failing.random() < self.timing.restore_failures)

    async def boot_on(self, host: SimHost) -> None:
        """Start and boot: the start takes a start slot; desktops boot concurrently."""
        await host.starts.take()
        try:
            await host.run(self.start(), self.boot_cores)
        finally:
            host.starts.give_back()
        await host.run(self.boot(), self.boot_cores)


class TimedProvider:
    """Starts desktops on hosts; implements ``dartsim.core.ports.EnvProvider``.

    Each kind of latency on each host has its own random stream, drawn in the order of the calls. With ``forks`` the
    desktops of a host save their states there.

    Raises:
        ConfigError: If the desktops do not fit on the hosts.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        timing: EnvTiming,
        hosts: Sequence[SimHost],
        *,
        num_envs: int,
        rng: np.random.Generator,
        forks: bool = False,
    ) -> None:
        self.hosts = place(num_envs, hosts, timing.memory_gib)
        paces = [Pace(timing, stream) for stream in rng.spawn(len(hosts))]
        pace_of = {id(host): pace for host, pace in zip(hosts, paces, strict=True)}
        states = {id(host): HostStates(host.name) if forks else None for host in hosts}
        self._make_env = make_env
        self._states = [states[id(host)] for host in self.hosts]
        self._paces = [pace_of[id(host)] for host in self.hosts]

    async def start(self, slot: int) -> TimedEnv:
        host, pace = self.hosts[slot], self._paces[slot]
        await host.memory.take(pace.memory_mib)
        try:
            await pace.boot_on(host)
            return TimedEnv(self._make_env(), host, pace, self._states[slot])
        except BaseException as exc:
            host.memory.give_back(pace.memory_mib)
            if isinstance(exc, Exception) and not isinstance(exc, DartsimError):
                raise EnvStartFailed(f"desktop of slot {slot} on {host.name} did not start: {exc!r}") from exc
            raise
