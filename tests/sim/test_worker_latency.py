"""The way between desktops and pool."""

import asyncio
from math import inf

from dartsim.observe.records import Population
from dartsim.observe.states import DesktopState
from dartsim.sim.worker import DelayedService


def service(inner):
    return DelayedService(inner, asyncio.get_running_loop().env, 1.5)


def track():
    """Return a component's track, which the compiled service asks for."""
    return Population("desktops", DesktopState, 1, lambda: 0.0).tracks[0]


class Inner:
    def __init__(self):
        self.asked = []
        self.closed = 0

    def session(self, attempt, track):
        self.opened = (attempt, track)
        return self

    async def generate(self, request):
        self.asked.append((asyncio.get_running_loop().time(), request))
        await asyncio.sleep(3.0)
        return "reply"

    def close(self):
        self.closed += 1


async def test_a_request_is_on_its_way_before_the_pool_sees_it():
    inner = Inner()
    session = service(inner).session("attempt", track())
    assert await session.generate("request") == "reply"
    assert inner.asked == [(1.5, "request")]
    assert asyncio.get_running_loop().time() == 4.5
    assert inner.opened[0] == "attempt"


async def test_a_request_that_is_cancelled_on_its_way_never_arrives():
    inner = Inner()
    session = service(inner).session(None, track())
    asking = asyncio.get_running_loop().create_task(session.generate("request"))
    await asyncio.sleep(1.0)
    asking.cancel()
    await asyncio.sleep(10.0)
    assert asking.cancelled()
    assert inner.asked == []


async def test_a_request_that_is_cancelled_leaves_no_timer():
    asking = asyncio.get_running_loop().create_task(service(Inner()).session(None, track()).generate("request"))
    await asyncio.sleep(1.0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asyncio.get_running_loop().env.peek() == inf


async def test_closing_closes_the_session_behind():
    inner = Inner()
    service(inner).session(None, track()).close()
    assert inner.closed == 1
