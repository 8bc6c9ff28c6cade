"""A start that is given up: its container is removed, and a removal that hangs keeps nobody past a deadline."""

import asyncio
import socket

import pytest

pytest.importorskip("httpx")

from dartsim.real.osworld import provider as provider_module
from dartsim.real.osworld.provider import start_desktop


class Container:
    """Runs, and its server never answers."""

    def __init__(self, hangs):
        self.host = "127.0.0.1"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.ports = {"server": probe.getsockname()[1]}
        self.go_on = asyncio.Event()
        if not hangs:
            self.go_on.set()
        self.removed = False

    async def remove(self):
        await self.go_on.wait()
        self.removed = True


class Host:
    def __init__(self, container):
        self.container = container

    async def start(self, spec, *, slot):
        return self.container


@pytest.mark.parametrize("hangs", [False, True])
def test_a_start_that_is_cancelled_waits_for_the_removal_of_its_container_only_so_long(monkeypatch, hangs):
    monkeypatch.setattr(provider_module, "GIVE_UP_SECONDS", 0.05 if hangs else 60.0)

    async def main():
        container = Container(hangs)
        starting = asyncio.create_task(start_desktop(Host(container), None))
        await asyncio.sleep(0.05)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        assert container.removed is not hangs
        assert len(provider_module._closing) == hangs
        container.go_on.set()
        while provider_module._closing:
            await asyncio.wait(set(provider_module._closing))
            await asyncio.sleep(0)
        assert container.removed, "it goes on behind the start"

    asyncio.run(main())
