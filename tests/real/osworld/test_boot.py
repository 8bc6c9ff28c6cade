"""Starting a desktop whose container ends, or vanishes, before anybody listens in it."""

import asyncio
import socket

import pytest

pytest.importorskip("httpx")
pytest.importorskip("PIL")

from real.containers import ContainerSpec
from real.containers.errors import ContainerExited, ContainerGone, EngineHung
from real.osworld import boot
from real.osworld.ready import Readiness
from real.osworld.settings import DesktopSettings

SETTINGS = DesktopSettings(booted=Readiness(limit_seconds=60.0, poll_seconds=0.02))


class Container:
    """Publishes a port where nobody listens; says of itself what it is told to, one thing after the other."""

    host = "127.0.0.1"
    spec = ContainerSpec(image="some/desktop")

    def __init__(self, *states):
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.ports = {"server": door.getsockname()[1]}
        self.states = list(states)
        self.removed = 0

    def __repr__(self):
        return "<container>"

    async def state(self):
        found = self.states.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def remove(self):
        self.removed += 1


class Host:
    def __init__(self, container):
        self.container = container

    async def start(self, spec, *, slot):
        return self.container


RUNS = {"Status": "running"}
ENDED = {"Status": "exited", "ExitCode": 3, "OOMKilled": True}


@pytest.mark.parametrize(
    ("last", "words"),
    [(ENDED, "some/desktop ended with exit code 3 .* out of memory"), (ContainerGone("who?"), "was removed")],
)
def test_a_container_that_ends_is_not_waited_for(monkeypatch, last, words):
    monkeypatch.setattr(boot, "LOOK_SECONDS", 0.05)
    container = Container(RUNS, EngineHung("busy"), last)
    with pytest.raises(ContainerExited, match=words) as caught:
        asyncio.run(boot.start_desktop(Host(container), container.spec, settings=SETTINGS))
    assert caught.value.cause == "container_exited"
    assert (container.states, container.removed) == ([], 1)


def test_a_start_that_is_cancelled_leaves_nothing(monkeypatch):
    container = Container()

    async def main():
        starting = asyncio.create_task(boot.start_desktop(Host(container), container.spec, settings=SETTINGS))
        await asyncio.sleep(0.1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert container.removed == 1
