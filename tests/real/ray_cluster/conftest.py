"""One Ray of our own for a module's tests, on the loopback; skipped by name where Ray is not installed."""

import asyncio
import importlib.util
import os
import signal
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def local_ray():
    if importlib.util.find_spec("ray") is None:  # not imported: how it listens is read from the environment then
        pytest.skip("needs the extra `ray`")
    from dartsim.real.ray_cluster.session import connected

    with connected("local", cpus=8, resources={"desktops": 4.0}):
        yield


async def eventually(true, seconds=60.0):
    """Wait until a condition holds that other processes make true."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - nobody here sets an event
            await asyncio.sleep(0.02)


@pytest.fixture(name="eventually")
def give_eventually():
    return eventually


@pytest.fixture
def place(local_ray):
    """Make parts that are killed at the end: ``place(name, make, **options)``."""
    from dartsim.real.ray_cluster.parts import Part

    made = []

    def make(name, function, **want):
        made.append(Part(name, function, {"num_cpus": 0.1, **want}))
        return made[-1]

    yield make
    for part in made:
        part.kill()


@pytest.fixture
def end():
    """End the process of a part as the kernel would, and wait until it is gone: ``await end(part)``."""

    async def kill(part):
        place = await part.placed()
        os.kill(place.pid, signal.SIGKILL)
        await eventually(lambda: not Path(f"/proc/{place.pid}").exists())
        return place

    return kill
