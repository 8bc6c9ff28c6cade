"""A start that is given up: its container is removed, and a removal that hangs keeps nobody past a deadline."""

import asyncio
import socket

import pytest

pytest.importorskip("httpx")

from dartsim.core.errors import ConfigError
from dartsim.real.osworld import provider as provider_module
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.errors import NotReady
from dartsim.real.osworld.provider import DesktopProvider, start_desktop
from dartsim.real.osworld.ready import Readiness
from dartsim.real.osworld.settings import DesktopSettings

pytestmark = pytest.mark.anyio


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
        self.removed = asyncio.Event()

    name = "desktop-7"
    output = b"GRUB loading.\r\nerror: no such partition.\r\n\r\n"

    async def logs(self):
        return self.output

    async def remove(self):
        await self.go_on.wait()
        self.removed.set()


class Host:
    def __init__(self, container):
        self.container = container

    async def start(self, spec, *, slot):
        return self.container


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_start_that_is_cancelled_waits_for_the_removal_of_its_container_only_so_long(monkeypatch, hangs):
    monkeypatch.setattr(provider_module, "GIVE_UP_SECONDS", 0.05 if hangs else 60.0)

    container = Container(hangs)
    starting = asyncio.create_task(start_desktop(Host(container), None, DesktopOptions()))
    await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert container.removed.is_set() is not hangs
    container.go_on.set()
    await container.removed.wait()  # it goes on behind the start


async def test_a_desktop_that_never_answers_says_where_its_console_is(tmp_path):
    container, folder = Container(hangs=False), tmp_path / "run" / "consoles"
    settings = DesktopSettings(booted=Readiness(limit_seconds=0.1, poll_seconds=0.01))
    with pytest.raises(NotReady, match="no such partition") as failed:
        await start_desktop(Host(container), None, DesktopOptions(settings=settings, consoles=folder))
    (kept,) = folder.iterdir()
    assert str(kept) in str(failed.value)
    assert kept.read_bytes() == container.output
    assert container.removed.is_set()


class Screens:
    """Hosts a desktop with a screen of 320 × 240 in every container."""

    def __init__(self, port):
        self.port = port
        self.started = self.removed = 0

    async def start(self, spec, *, slot):
        self.started += 1
        return self

    host, name = "127.0.0.1", "screens"
    ports = property(lambda self: {"server": self.port})

    async def logs(self):
        return b""

    async def remove(self):
        self.removed += 1


async def with_screens(standin, act, *, screen=(320, 240)):
    told = []
    async with standin.Sockets(standin.Vm()) as server:
        host = Screens(int(server.base_url.rsplit(":", 1)[1]))
        options = DesktopOptions(
            settings=DesktopSettings(screen=screen, booted=Readiness(quiet_seconds=0.0, poll_seconds=0.01)),
            server=standin.PATIENT,
            downloads=None,
            scorer=None,
            on_call=lambda slot, what, seconds: told.append((slot, what)),
        )
        async with DesktopProvider(host, None, options).checked(30.0) as provider:
            await act(provider, host, told)
    return host


def test_a_screen_of_the_wrong_size_is_found_out_before_any_attempt(standin):
    async def act(provider, host, told):
        pytest.fail("the run begins")

    with pytest.raises(ConfigError, match="320 × 240"):
        asyncio.run(with_screens(standin, act, screen=(1920, 1080)))


def test_the_first_slot_gets_the_desktop_that_was_looked_at(standin):
    async def act(provider, host, told):
        assert host.started == 1
        first, second = await provider.start(5), await provider.start(6)
        assert host.started == 2
        told.clear()
        await first.close()
        await second.close()
        assert told == [(5, "teardown"), (6, "teardown")]

    assert asyncio.run(with_screens(standin, act)).removed == 2


def test_a_desktop_that_was_looked_at_and_not_used_is_removed(standin):
    async def act(provider, host, told):
        pass

    assert asyncio.run(with_screens(standin, act)).removed == 1
