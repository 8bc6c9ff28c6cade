"""``DesktopFleet``: several machines with engines, as one place to start containers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dartsim.core.errors import ConfigError
from dartsim.real.containers.container import Container
from dartsim.real.containers.errors import EngineMissing, EngineTimedOut
from dartsim.real.containers.host import DockerHost
from dartsim.real.containers.spec import ContainerSpec

logger = logging.getLogger(__name__)


class DesktopFleet:
    """Places containers on hosts, never more on one than its capacity.

    A container goes where the largest share of places is free, so that hosts of different sizes fill evenly. If all
    are full it waits, first come, first served. A host whose engine failed to answer is asked last for
    ``rest_seconds``; retries are the caller's business.

    Args:
        hosts: The machines; the fleet closes them.
        rest_seconds: How long a host with a failed engine is avoided, where another has a free place.
    """

    def __init__(self, hosts: Sequence[DockerHost], *, rest_seconds: float = 30.0) -> None:
        if not hosts:
            raise ConfigError("a fleet needs at least one host")
        self.hosts = tuple(hosts)
        self._rest_seconds = rest_seconds
        self._rested: dict[DockerHost, float] = {}
        self._line = asyncio.Lock()

    @property
    def capacity(self) -> int:
        """Containers that may exist at once."""
        return sum(host.settings.capacity for host in self.hosts)

    @property
    def num_held(self) -> int:
        """Containers that exist, are being made, or may still exist."""
        return sum(host.num_held for host in self.hosts)

    async def open(self) -> int:
        """Reap what earlier runs left on every host, and return how many containers that were.

        Raises:
            EngineMissing: If no host's engine answers; one that does not, while another does, is only avoided.
        """
        results = await asyncio.gather(*(host.reap() for host in self.hosts), return_exceptions=True)
        faults = [result for result in results if isinstance(result, BaseException)]
        for host, result in zip(self.hosts, results, strict=True):
            if isinstance(result, (EngineMissing, EngineTimedOut)):
                self._rest(host, result)
            elif isinstance(result, BaseException):
                raise result
        if len(faults) == len(self.hosts):
            raise faults[0]
        return sum(result for result in results if isinstance(result, int))

    async def require(self, image: str) -> None:
        """Ask every host that answers whether it has an image: better now than at its first start.

        Raises:
            ImageMissing: If one has not.
        """
        results = await asyncio.gather(*(host.require(image) for host in self.hosts), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, (EngineMissing, EngineTimedOut)):
                raise result

    async def start(self, spec: ContainerSpec, *, slot: int) -> Container:
        """Start a container for a slot on the host with the most room, waiting for a place if there is none.

        Raises:
            ContainerStartFailed: With its cause; nothing of the container is left.
        """
        async with self._line:
            host = self._choose() or await self._place()
        # Nothing is awaited between the choice and the first step of `host.start`, where the container begins to count.
        try:
            return await host.start(spec, slot=slot)
        except (EngineMissing, EngineTimedOut) as fault:
            self._rest(host, fault)
            raise

    async def close(self) -> None:
        """Remove everything that was started and let go of the engines. May be called twice; never raises."""
        await asyncio.gather(*(host.close() for host in self.hosts))

    async def __aenter__(self) -> DesktopFleet:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _choose(self) -> DockerHost | None:
        """Return the host with the largest share of free places, or None if all are full."""
        free = [host for host in self.hosts if host.num_held < host.settings.capacity]
        if not free:
            return None
        now = asyncio.get_running_loop().time()
        return min(free, key=lambda h: (self._rested.get(h, now) > now, h.num_held / h.settings.capacity))

    async def _place(self) -> DockerHost:
        """Wait until some host has a place."""
        while True:
            for host in self.hosts:
                host.freed.clear()
            await asyncio.gather(*(host.retry_lost() for host in self.hosts))
            found = self._choose()
            if found is not None:
                return found
            waiting = [asyncio.create_task(host.freed.wait()) for host in self.hosts]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()

    def _rest(self, host: DockerHost, fault: BaseException) -> None:
        logger.warning("%s is avoided for %g s: %s", host, self._rest_seconds, fault)
        self._rested[host] = asyncio.get_running_loop().time() + self._rest_seconds
