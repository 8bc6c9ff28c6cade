"""``DesktopFleet``: several machines with engines, used like one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dartsim.config.schema import DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.containers.errors import EngineMissing, EngineTimedOut, ImageMissing
from dartsim.real.containers.host import Container, DockerHost
from dartsim.real.containers.spec import ContainerSpec

logger = logging.getLogger(__name__)


class DesktopFleet:
    """Places containers on hosts, never more on one than its capacity.

    A container goes to the host with the largest share of free places, so that hosts of different sizes fill evenly. If
    all are full, it waits, first come, first served. A host whose engine failed to answer is avoided for
    ``rest_seconds`` if another has a free place; the caller retries. The fleet closes its hosts.
    """

    def __init__(self, hosts: Sequence[DockerHost], *, rest_seconds: float = 30.0) -> None:
        if not hosts:
            raise ConfigError("a fleet needs at least one host")
        self.hosts = tuple(hosts)
        self._rest_seconds = rest_seconds
        self._avoided_until: dict[DockerHost, float] = {}
        self._queue = asyncio.Lock()

    @property
    def capacity(self) -> int:
        return sum(host.settings.max_desktops for host in self.hosts)

    @property
    def num_held(self) -> int:
        """Containers that exist, are being made, or may still exist."""
        return sum(host.num_held for host in self.hosts)

    async def open(self) -> int:
        """Remove what earlier runs left on every host, and return the number of containers removed.

        Raises:
            EngineMissing: If no engine answers. If only some do not, they are avoided.
        """
        results = await asyncio.gather(*(host.reap() for host in self.hosts), return_exceptions=True)
        faults = [result for result in results if isinstance(result, BaseException)]
        if len(faults) == len(self.hosts):
            raise faults[0]
        for host, result in zip(self.hosts, results, strict=True):
            if isinstance(result, (EngineMissing, EngineTimedOut)):
                self._avoid(host, result)
            elif isinstance(result, BaseException):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def require(self, image: str) -> None:
        """Check that every engine that answers has an image.

        Raises:
            ConfigError: If one lacks it.
            EngineMissing: If none answers.
        """
        results = await asyncio.gather(*(host.require(image) for host in self.hosts), return_exceptions=True)
        faults = [result for result in results if isinstance(result, BaseException)]
        for fault in faults:
            if isinstance(fault, ImageMissing):
                raise ConfigError(str(fault)) from fault
            if not isinstance(fault, (EngineMissing, EngineTimedOut)):
                raise fault
        if len(faults) == len(self.hosts):
            raise faults[0]

    async def start(self, spec: ContainerSpec, *, slot: int) -> Container:
        """Start a container for a slot on the host with the most room, waiting for a place if there is none.

        Raises:
            ContainerStartFailed: With its cause; nothing of the container is left.
        """
        async with self._queue:
            host = self._choose() or await self._wait_for_place()
        # There is no await between the choice and the first step of `host.start`, which counts the container.
        try:
            return await host.start(spec, slot=slot)
        except (EngineMissing, EngineTimedOut) as fault:
            self._avoid(host, fault)
            raise

    async def close(self) -> None:
        await asyncio.gather(*(host.close() for host in self.hosts))

    async def __aenter__(self) -> DesktopFleet:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _choose(self) -> DockerHost | None:
        """Return the host with the largest share of free places, or None if all are full."""
        free = [host for host in self.hosts if host.num_held < host.settings.max_desktops]
        if not free:
            return None
        now = asyncio.get_running_loop().time()
        return min(free, key=lambda h: (self._avoided_until.get(h, now) > now, h.num_held / h.settings.max_desktops))

    async def _wait_for_place(self) -> DockerHost:
        while True:
            for each in self.hosts:
                each.freed.clear()
            await asyncio.gather(*(host.retry_lost() for host in self.hosts))
            if (host := self._choose()) is not None:
                return host
            waiting = [asyncio.create_task(host.freed.wait()) for host in self.hosts]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()

    def _avoid(self, host: DockerHost, fault: BaseException) -> None:
        logger.warning("%s is avoided for %g s: %s", host, self._rest_seconds, fault)
        self._avoided_until[host] = asyncio.get_running_loop().time() + self._rest_seconds


def require_image(engines: Sequence[DockerHostConfig], image: str) -> None:
    """Check that every engine that answers has an image; raises as ``DesktopFleet.require``."""

    async def ask() -> None:
        fleet = DesktopFleet([DockerHost(engine) for engine in engines])
        try:
            await fleet.require(image)
        finally:
            await fleet.close()

    asyncio.run(ask())
