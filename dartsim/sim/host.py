"""A machine that runs desktops: memory, container starts and cores; and the placement of desktops on machines.

Memory is a SimPy container, start slots (one, or k) are granted in order, and all jobs share the cores
(``dartsim.sim.cores``). A cancelled call releases what it took.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

import simpy

from dartsim.core.errors import ConfigError
from dartsim.core.words import plural
from dartsim.sim.cores import SharedCores
from dartsim.sim.environment import SimEnvironment, wait
from dartsim.sim.pause import Pause

MIB_PER_GIB = 1024


class Memory(simpy.Container):
    """Memory in whole MiB, granted first come, first served.

    Whole, because sums of GiB round: a put that exceeds the capacity by one bit would wait forever.
    """

    def __init__(self, env: SimEnvironment, mib: int) -> None:
        super().__init__(env, capacity=mib, init=mib)

    async def take(self, mib: int) -> None:
        """Wait for ``mib`` and take it; if cancelled, take nothing."""
        if mib <= self._level and not self.get_queue:
            self._level -= mib  # no one waits, so take it at once, without an event
            return
        get = self.get(mib)
        try:
            await wait(get)
        except BaseException:
            self._withdraw(get, mib)
            raise

    def give_back(self, mib: int) -> None:
        if self.get_queue or self._level + mib > self.capacity:
            self.put(mib)
        else:
            self._level += mib

    def _withdraw(self, get: simpy.resources.container.ContainerGet, mib: int) -> None:
        if get.triggered:
            self.give_back(mib)
        else:
            get.cancel()
            self._trigger_get(None)  # a smaller request may have waited behind this one


class StartSlots:
    """A host's start slots, granted first come, first served.

    Attributes:
        count: Number of slots taken.
        queue: Futures that wait for a slot.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.queue: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a slot and take it; if cancelled, take none."""
        if self.count < self.capacity:
            self.count += 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append(granted)
        try:
            await granted
        except BaseException:
            if granted in self.queue:
                self.queue.remove(granted)
            elif not granted.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Free a slot, or pass it to the longest waiter."""
        while self.queue:
            granted = self.queue.popleft()
            if not granted.done():
                granted.set_result(None)
                return
        self.count -= 1


class SimHost:
    """One machine."""

    def __init__(
        self,
        env: SimEnvironment,
        cores: float = math.inf,
        memory_gib: float = math.inf,
        concurrent_starts: int = 1,
        name: str = "host",
    ) -> None:
        if not memory_gib > 0:
            raise ConfigError(f"{name}: memory_gib must be > 0, got {memory_gib}")
        if concurrent_starts < 1:
            raise ConfigError(f"{name}: concurrent_starts must be at least 1, got {concurrent_starts}")
        self.name = name
        self.memory_gib = memory_gib
        self.cores = SharedCores(env, cores)
        self.memory = Memory(env, 2**62 if memory_gib == math.inf else math.floor(memory_gib * MIB_PER_GIB))
        self.starts = StartSlots(concurrent_starts)

    def run(self, seconds: float, demand: float) -> Coroutine[Any, Any, None]:
        """Run a job on the cores; if cancelled, it leaves them."""
        return self.cores.run(seconds, demand)

    async def idle(self, seconds: float) -> None:
        """Wait without using cores; if cancelled, leave no timer."""
        await Pause(self.cores.env, seconds)

    def fits(self, memory_gib: float) -> int | None:
        """Return how many desktops of this size fit in total; None: no limit."""
        if self.memory_gib == math.inf or memory_gib <= 0:
            return None
        return int(self.memory.capacity) // mib(memory_gib)

    def __repr__(self) -> str:
        return f"<SimHost {self.name}: {self.cores.cores} cores, {self.memory_gib} GiB>"


def mib(memory_gib: float) -> int:
    """Return GiB as whole MiB, rounded up."""
    return math.ceil(memory_gib * MIB_PER_GIB)


def place(num_envs: int, hosts: Sequence[SimHost], memory_gib: float = 0.0) -> list[SimHost]:
    """Assign a host to each desktop slot, in turn, skipping hosts without enough memory.

    Raises:
        ConfigError: If the desktops do not fit.
    """
    room = [host.fits(memory_gib) for host in hosts]
    if not hosts or (None not in room and sum(r or 0 for r in room) < num_envs):
        raise ConfigError(_does_not_fit(num_envs, hosts, memory_gib))
    placed: list[SimHost] = []
    while len(placed) < num_envs:
        for i, host in enumerate(hosts):
            left = room[i]
            if len(placed) < num_envs and left != 0:
                room[i] = None if left is None else left - 1
                placed.append(host)
    return placed


def _does_not_fit(num_envs: int, hosts: Sequence[SimHost], memory_gib: float) -> str:
    carried = [host.fits(memory_gib) or 0 for host in hosts]
    what = ", ".join(f"{host.name} {count}" for host, count in list(zip(hosts, carried, strict=True))[:4])
    more = ", …" if len(hosts) > 4 else ""
    return (
        f"{num_envs} desktops of {memory_gib:g} GiB do not fit on {plural(len(hosts), 'host')}, with room for "
        f"{sum(carried)} ({what}{more}); give more hosts, more memory_gib a host, or fewer desktops"
    )
