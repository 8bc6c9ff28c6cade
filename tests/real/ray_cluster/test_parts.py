"""An actor as a part of a run: where it sits, calls and errors, cancellation, its end and its return."""

import asyncio
import os

import pytest

from dartsim.core.errors import ConfigError, EnvBroken
from dartsim.real.ray_cluster.errors import ActorGone, ActorLost

pytestmark = pytest.mark.anyio


def make_counter():
    """Return what makes the object of an actor; a closure travels by value, a test's module is not on the nodes."""

    class Odd(Exception):
        pass

    class Counter:
        def __init__(self):
            self.cancelled = 0
            self.end = asyncio.Event()

        def pid(self):
            return os.getpid()

        async def later(self, value):
            return value

        async def sleep(self):
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                self.cancelled += 1
                self.end.set()
                raise

        async def ended(self):
            await self.end.wait()
            return self.cancelled

        async def seen(self):
            return self.cancelled

        async def fail(self):
            raise EnvBroken("the screen is black")

        async def foreign(self):
            raise ZeroDivisionError("by nought")

    return Counter


async def test_calls_and_errors_pass_to_and_fro(place):
    part = place("counter", make_counter())
    facts = await part.placed()
    assert facts.pid != os.getpid()
    assert facts.address == "127.0.0.1"
    assert await part.call("pid") == facts.pid
    assert await part.call("later", "x") == "x"
    with pytest.raises(EnvBroken, match="black"):
        await part.call("fail")
    with pytest.raises(ZeroDivisionError):
        await part.call("foreign")


async def test_cancelling_a_call_cancels_it_in_the_actor(place):
    part = place("counter", make_counter())
    call = asyncio.ensure_future(part.call("sleep"))
    await part.placed()
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(20.0):
        assert await part.call("ended") == 1


async def test_an_actor_that_is_killed_fails_its_calls_and_comes_back(place, end):
    part = place("counter", make_counter())
    call = asyncio.ensure_future(part.call("sleep"))
    before = await end(part)
    async with asyncio.timeout(60.0):
        with pytest.raises(ActorLost, match="counter"):
            await call
        after = await part.placed()
    assert after.pid != before.pid
    assert await part.call("seen") == 0


async def test_an_actor_without_restarts_is_gone(place, end):
    part = place("counter", make_counter(), max_restarts=0)
    await end(part)
    async with asyncio.timeout(60.0):
        with pytest.raises(ActorGone):
            await part.placed()


def test_what_no_node_has_is_said_with_what_there_is(place):
    part = place("big", make_counter(), num_gpus=1000)
    with pytest.raises(ConfigError, match=r"big.*'num_gpus': 1000"):
        asyncio.run(part.placed(0.5))


def test_options_that_ray_does_not_know_are_refused(place):
    with pytest.raises(ConfigError, match="no_such"):
        place("odd", make_counter(), no_such=1)
