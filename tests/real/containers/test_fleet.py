"""Several engines: filled evenly, never over capacity, the failing one avoided."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from dartsim.config.schema import DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.containers import ContainerSpec, DesktopFleet, DockerHost
from dartsim.real.containers.errors import ContainerStartFailed, EngineMissing, ImageMissing

pytestmark = pytest.mark.anyio

SPEC = ContainerSpec(image="desktop", ports={"server": 5000})


@pytest.fixture
def no_image(refusal):
    def fail(_):
        raise refusal(404, "No such image: desktop", "ImageNotFound")

    return fail


@pytest.fixture
def engines(engine) -> list[Any]:
    return [engine, type(engine)()]


def fleet_of(engines: list[Any], *capacities: int, **settings) -> DesktopFleet:
    return DesktopFleet(
        [
            DockerHost(
                DockerHostConfig(url=f"unix:///fake{n}", max_desktops=capacity, **settings),
                connect=engine.connect,
                check_reachable=engine.check_reachable,
            )
            for n, (engine, capacity) in enumerate(zip(engines, capacities, strict=True))
        ]
    )


def down(_):
    raise EngineMissing("no Docker engine answers")


async def test_hosts_fill_by_their_share(engines):
    async with fleet_of(engines, 6, 3) as fleet:
        await asyncio.gather(*(fleet.start(SPEC, slot=slot) for slot in range(6)))
        assert [host.num_held for host in fleet.hosts] == [4, 2]
        assert (fleet.capacity, fleet.num_held) == (9, 6)
    assert not any(engine.names for engine in engines)


async def test_a_full_fleet_waits_for_a_place_in_turn(engines):
    async with fleet_of(engines, 1, 1) as fleet:
        first = await fleet.start(SPEC, slot=0)
        await fleet.start(SPEC, slot=1)
        waiting = [asyncio.create_task(fleet.start(SPEC, slot=slot)) for slot in (2, 3)]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in waiting)
        await first.remove()
        third = await waiting[0]
        assert third.slot == 2
        assert not waiting[1].done()
        waiting[1].cancel()
        await asyncio.wait(waiting)
        await third.remove()
        await fleet.start(SPEC, slot=4)
    assert not any(engine.names for engine in engines)


async def test_never_more_than_capacity(engines):
    rng = np.random.default_rng(1)
    over: list[int] = []
    lock = threading.Lock()

    def watch(engine, capacity: int):
        def look(_):
            with lock:
                if len(engine.names) > capacity:
                    over.append(len(engine.names))

        return look

    for engine, capacity in zip(engines, (3, 2), strict=True):
        engine.hooks["created"] = watch(engine, capacity)
    async with fleet_of(engines, 3, 2) as fleet:

        async def one(slot: int):
            # Every other one never times out, so that some start however slow the machine is.
            try:
                async with asyncio.timeout(None if slot % 2 else rng.random() * 0.1):
                    container = await fleet.start(SPEC, slot=slot)
            except TimeoutError:
                return
            await asyncio.sleep(rng.random() * 0.005)
            await container.remove()

        await asyncio.gather(*(one(slot) for slot in range(100)))
        assert fleet.num_held == 0
    assert not over
    assert sum(engine.seen["create"] for engine in engines) > 20


async def test_a_host_whose_engine_is_gone_is_avoided(engines):
    async with fleet_of(engines, 4, 4) as fleet:
        engines[0].hooks["create"] = down
        with pytest.raises(EngineMissing):
            await fleet.start(SPEC, slot=0)
        for slot in range(4):
            await fleet.start(SPEC, slot=slot)
        assert [host.num_held for host in fleet.hosts] == [0, 4]
        with pytest.raises(EngineMissing):
            await fleet.start(SPEC, slot=5)


async def test_an_image_that_one_host_lacks_is_missed_at_once(engines, no_image):
    async with fleet_of(engines, 1, 1) as fleet:
        await fleet.require("desktop")
        engines[1].hooks["image"] = no_image
        with pytest.raises(ConfigError):
            await fleet.require("desktop")


async def test_a_fault_of_the_spec_is_not_the_hosts(engines, no_image):
    async with fleet_of(engines, 1, 1) as fleet:
        engines[0].hooks["create"] = no_image
        for _ in range(3):
            with pytest.raises(ImageMissing):
                await fleet.start(SPEC, slot=0)
        assert engines[1].seen["create"] == 0


def test_opening_reaps_on_every_host(engines):
    async def leave():
        fleet = fleet_of(engines, 2, 2)
        await fleet.open()
        for slot in range(4):
            await fleet.start(SPEC, slot=slot)
        for engine in engines:
            engine.hooks["remove"] = down
        await fleet.close()

    async def main():
        assert [len(engine.names) for engine in engines] == [2, 2]
        fleet = fleet_of(engines, 2, 2)
        assert await fleet.open() == 4
        await fleet.close()

    asyncio.run(leave())
    for engine in engines:
        engine.hooks.clear()
    asyncio.run(main())


async def test_opening_needs_one_engine_that_answers(engines):
    engines[0].hooks["connect"] = down
    async with fleet_of(engines, 2, 2) as fleet:
        await fleet.start(SPEC, slot=0)
        assert [host.num_held for host in fleet.hosts] == [0, 1]
    engines[1].hooks["connect"] = down
    fleet = fleet_of(engines, 2, 2)
    with pytest.raises(ContainerStartFailed):
        await fleet.open()
    await fleet.close()
