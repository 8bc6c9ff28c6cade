"""One engine: nothing is left behind, whatever happens and whenever. The engine is a fake, the threads are real."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dartsim.config.schema import DockerHostConfig
from dartsim.real.containers import ContainerSpec, DockerHost
from dartsim.real.containers.errors import (
    AddressUnknown,
    ContainerExited,
    ContainerFault,
    ContainerGone,
    ContainerStartFailed,
    HostClosed,
    PortClash,
    PortsUnknown,
)

pytestmark = pytest.mark.anyio

SPEC = ContainerSpec(image="desktop", ports={"server": 5000, "vnc": 8006})


def host_of(engine, **settings) -> DockerHost:
    return DockerHost(
        DockerHostConfig(url="unix:///fake", **settings),
        run="r",
        connect=engine.connect,
        check_reachable=engine.check_reachable,
    )


def clean(engine) -> bool:
    return not engine.names and not engine.shared


class Gate:
    """Holds a call of the engine until it is opened."""

    def __init__(self):
        self.reached = threading.Event()
        self._go = threading.Event()

    def __call__(self, about):
        self.reached.set()
        assert self._go.wait(10)

    def open(self):
        self._go.set()


async def reached(gate: Gate):
    assert await asyncio.to_thread(gate.reached.wait, 10)


async def until(condition: Callable[[], bool]):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_starts_and_removes(engine):
    host = host_of(engine)
    first = await host.start(SPEC, slot=0)
    second = await host.start(SPEC, slot=1)
    assert first.host == "127.0.0.1"
    assert first.ports == {"server": 32768, "vnc": 32769}
    assert second.ports == {"server": 32770, "vnc": 32771}
    assert set(engine.names) == {first.name, second.name}
    assert host.num_held == 2
    assert await first.exec(["echo", "a"]) == (0, b"echo a")
    assert await first.logs() == b"it said this\n"
    assert (await first.state())["Status"] == "running"
    await first.remove()
    await first.remove()
    assert set(engine.names) == {second.name}
    assert host.num_held == 1
    await host.close()
    await host.close()
    assert clean(engine)
    assert engine.seen["close"] == 1


async def test_the_name_of_a_machine_is_looked_up(engine, monkeypatch):
    known = {"v4": ["10.0.0.7"], "both": ["fd00::7", "10.0.0.7"], "v6": ["fd00::7"]}

    def look_up(name: str, *_, **__) -> list[Any]:
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(kinds[":" in each], socket.SOCK_STREAM, 6, "", (each, 0)) for each in known[name]]

    async def host_in(name: str, **settings) -> str:
        async with host_of(engine, address=name, **settings) as host:
            return (await host.start(SPEC, slot=0)).host

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert await host_in("v4") == "10.0.0.7"
    assert await host_in("both") == "10.0.0.7"
    assert await host_in("both", bind="::") == "fd00::7"
    assert await host_in("v6") == "fd00::7"
    created = engine.seen["create"]
    with pytest.raises(AddressUnknown, match=r"'nowhere'.*Name or service not known"):
        await host_in("nowhere")
    assert engine.seen["create"] == created
    assert clean(engine)


@pytest.mark.parametrize("call", ["create", "created", "start", "reload"])
async def test_a_failed_start_leaves_nothing(engine, refusal, call):
    def fail(_):
        raise refusal(500, "port is already allocated")

    async with host_of(engine) as host:
        engine.hooks[call] = fail
        with pytest.raises(PortClash):
            await host.start(SPEC, slot=0)
        assert not engine.names
        assert host.num_held == 0
        del engine.hooks[call]
        assert (await host.start(SPEC, slot=0)).ports
    assert clean(engine)


async def test_a_container_that_ends_at_once_is_told_with_its_last_words(engine):
    def end(container):
        container.status = "exited"

    engine.hooks["reload"] = end
    async with host_of(engine) as host:
        with pytest.raises(ContainerExited, match=r"exit code 3.*it said this"):
            await host.start(SPEC, slot=0)
        assert not engine.names


async def test_ports_are_waited_for_but_not_for_ever(engine, monkeypatch):
    monkeypatch.setattr("dartsim.real.containers.launch.PORTS_SECONDS", 0.05)
    calls: list[Any] = []

    def late(container):
        calls.append(container)
        if len(calls) == 1:
            container.late, container.ports = container.ports, {}
        if len(calls) == 3:
            container.ports = container.late

    def never(container):
        container.ports = {"5000/tcp": None, "8006/tcp": [{"HostPort": "7"}]}

    async with host_of(engine) as host:
        engine.hooks["reload"] = late
        assert (await host.start(SPEC, slot=0)).ports == {"server": 32768, "vnc": 32769}
        engine.hooks["reload"] = never
        with pytest.raises(PortsUnknown):
            await host.start(SPEC, slot=1)
        assert len(engine.names) == 1


@pytest.mark.parametrize("call", ["connect", "create", "created", "start", "reload"])
async def test_a_cancelled_start_leaves_nothing(engine, call):
    """The engine is slow; the caller gives up while it works."""

    gate = engine.hooks[call] = Gate()
    async with host_of(engine) as host:
        starting = asyncio.create_task(host.start(SPEC, slot=0))
        await reached(gate)
        starting.cancel()
        await asyncio.sleep(0)
        assert not starting.done(), "it waits for its clean-up"
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not engine.names
        assert host.num_held == 0
    assert clean(engine)


async def test_a_cancelled_start_does_not_wait_forever(engine, monkeypatch):
    monkeypatch.setattr("dartsim.real.containers.host.CANCEL_SECONDS", 0.01)

    gate = engine.hooks["start"] = Gate()
    async with host_of(engine) as host:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await host.start(SPEC, slot=0)
        assert host.num_held == 1, "it counts until it is gone"
        assert engine.names
        host.freed.clear()
        gate.open()
        async with asyncio.timeout(10):
            await host.freed.wait()
        assert not engine.names
        assert host.num_held == 0


async def test_a_start_that_waits_in_line_is_cancelled_at_once(engine):
    gate = engine.hooks["create"] = Gate()
    async with host_of(engine, concurrent_starts=1) as host:
        first = asyncio.create_task(host.start(SPEC, slot=0))
        await reached(gate)
        second = asyncio.create_task(host.start(SPEC, slot=1))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert host.num_held == 1
        gate.open()
        await first
        assert engine.seen["create"] == 1


async def test_concurrent_starts_are_bounded(engine):
    together = threading.Barrier(3)
    engine.hooks["create"] = lambda _: together.wait(10)

    async with host_of(engine, concurrent_starts=3) as host:
        containers = await asyncio.gather(*(host.start(SPEC, slot=slot) for slot in range(9)))
        assert len({port for container in containers for port in container.ports.values()}) == 18
    assert engine.most_at_once == 3


async def test_a_removal_goes_on_behind_a_cancelled_caller(engine):
    async with host_of(engine) as host:
        container = await host.start(SPEC, slot=0)
        gate = engine.hooks["remove"] = Gate()
        removing = asyncio.create_task(container.remove())
        await reached(gate)
        removing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removing
        gate.open()
        await container.remove()
        assert engine.seen["remove"] == 1
        assert not engine.names


async def test_what_could_not_be_removed_is_tried_again(engine, monkeypatch):
    monkeypatch.setattr("dartsim.real.containers.host.SWEEP_SECONDS", 0.01)

    def down(_):
        raise ConnectionResetError("engine restarts")

    async with host_of(engine) as host:
        container = await host.start(SPEC, slot=0)
        for call in ("remove", "list"):
            engine.hooks[call] = down
        with pytest.raises(ContainerFault, match="engine restarts"):
            await container.remove()
        assert host.num_held == 1, "it may still be there"
        await asyncio.sleep(0.03)
        assert host.num_held == 1
        engine.hooks.clear()
        await until(lambda: host.num_held == 0)
        assert not engine.names
    assert clean(engine)


async def test_a_container_made_by_a_call_whose_answer_got_lost_is_found(engine):
    """Creating times out, removing finds nothing yet, and then the engine makes it after all."""
    late: dict[str, Any] = {}

    def time_out(arguments: dict[str, Any]):
        late.update(arguments)
        raise TimeoutError("read timed out")

    async with host_of(engine) as host:
        engine.hooks["create"] = time_out
        with pytest.raises(ContainerStartFailed):
            await host.start(SPEC, slot=0)
        del engine.hooks["create"]
        engine.containers.create(**late)
        assert await host.reap() == 1
    assert clean(engine)


async def test_a_container_somebody_removed_is_gone(engine):
    async with host_of(engine) as host:
        container = await host.start(SPEC, slot=0)
        engine.names.clear()
        with pytest.raises(ContainerGone):
            await container.state()
        await container.remove()
        assert host.num_held == 0


async def test_closing_ends_starts_too(engine):
    gate = engine.hooks["start"] = Gate()
    host = host_of(engine, concurrent_starts=1)
    starts = [asyncio.create_task(host.start(SPEC, slot=slot)) for slot in range(3)]
    await reached(gate)
    closing = asyncio.create_task(host.close())
    await asyncio.sleep(0.01)
    gate.open()
    await closing
    results = await asyncio.gather(*starts, return_exceptions=True)
    assert [type(result) for result in results] == [HostClosed] * 3
    assert clean(engine)
    with pytest.raises(HostClosed):
        await host.start(SPEC, slot=3)
    with pytest.raises(HostClosed):
        await host.reap()


async def test_closing_never_raises(engine):
    def down(_):
        raise ConnectionResetError("engine died")

    host = host_of(engine)
    container = await host.start(SPEC, slot=0)
    for call in ("remove", "list", "info"):
        engine.hooks[call] = down
    await host.close()
    assert set(engine.names) == {container.name}
    engine.hooks.clear()
    async with host_of(engine) as later:
        assert await later.reap() == 1
    assert clean(engine)


async def test_random_cancels_and_faults_leak_nothing(engine, refusal):
    """200 starts on a slow and unreliable engine, each cancelled, failed, killed or removed at a random moment."""
    rng = np.random.default_rng(0)
    lock = threading.Lock()

    def draw() -> float:
        with lock:
            return float(rng.random())

    def shaky(_):
        threading.Event().wait(draw() * 0.004)
        if draw() < 0.1:
            raise refusal(500, "no space left on device")

    async def one(host: DockerHost, slot: int):
        try:
            async with asyncio.timeout(draw() * 0.03):
                container = await host.start(SPEC, slot=slot)
                await asyncio.sleep(draw() * 0.01)
                if draw() < 0.3:
                    await container.kill()
                await container.remove()
        except (TimeoutError, ContainerStartFailed, ContainerFault):
            pass

    for call in ("create", "created", "start", "reload", "remove", "get"):
        engine.hooks[call] = shaky
    async with host_of(engine, concurrent_starts=4) as host:
        await asyncio.gather(*(one(host, slot) for slot in range(200)))
        assert host.num_held < 200
        engine.hooks.clear()
    assert clean(engine)
    assert clean(engine)
