"""The way between desktops and pool."""

import asyncio

from dartsim.sim.hops import HopService


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
    session = HopService(inner, 1.5).session("attempt", "track")
    assert await session.generate("request") == "reply"
    assert inner.asked == [(1.5, "request")]
    assert asyncio.get_running_loop().time() == 4.5
    assert inner.opened == ("attempt", "track")


async def test_a_request_that_is_cancelled_on_its_way_never_arrives():
    inner = Inner()
    session = HopService(inner, 1.5).session(None, None)
    asking = asyncio.get_running_loop().create_task(session.generate("request"))
    await asyncio.sleep(1.0)
    asking.cancel()
    await asyncio.sleep(10.0)
    assert asking.cancelled()
    assert inner.asked == []


async def test_closing_closes_the_session_behind():
    inner = Inner()
    HopService(inner, 1.5).session(None, None).close()
    assert inner.closed == 1
