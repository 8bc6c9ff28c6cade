"""Requests that are ended: by whoever asked, by the engine's end, and by both at once."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dartsim.real.engines.errors import EngineRestarted
from dartsim.real.engines.in_flight import InFlight
from dartsim.real.engines.options import WorkerSettings


class Silent:
    """A client whose engine never answers."""

    def __init__(self):
        self.aborted: list[str] = []

    async def generate(self, body, pictures, *, seconds: float) -> dict[str, Any]:
        await asyncio.sleep(1e6)
        raise AssertionError("not reached")

    async def abort(self, request_id: str):
        self.aborted.append(request_id)


@pytest.mark.parametrize("steps", ["k", "c", "kc", "ck", "k c"])
async def test_who_cancels_a_request_is_always_heard(steps):
    client: Any = Silent()
    sender = InFlight("engine", WorkerSettings(), lambda: (client, None), refused=lambda: None)
    asking = asyncio.create_task(sender.send({}))
    await asyncio.sleep(1)
    for step in steps:
        if step == "k":
            sender.kill(EngineRestarted("for version 2"))
        elif step == "c":
            asking.cancel()
        else:
            await asyncio.sleep(0)
    await asyncio.wait([asking])
    if "c" in steps:
        assert asking.cancelled()
    else:
        assert isinstance(asking.exception(), EngineRestarted)
    await sender.settle()
    assert len(client.aborted) == ("c" in steps)


async def test_a_request_may_be_killed_under_a_caller_that_was_cancelled_before():
    """Who shrugs a cancellation off and asks again is told of the kill."""
    client: Any = Silent()
    sender = InFlight("engine", WorkerSettings(), lambda: (client, None), refused=lambda: None)

    async def stubborn():
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            await sender.send({})

    asking = asyncio.create_task(stubborn())
    await asyncio.sleep(1)
    asking.cancel()
    await asyncio.sleep(1)
    sender.kill(EngineRestarted("for version 2"))
    with pytest.raises(EngineRestarted):
        await asking
