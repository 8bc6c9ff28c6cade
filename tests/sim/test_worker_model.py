"""Workers whose replies a model computes: one batch for all in flight, each by one version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Content, Observation, Request, Task, Version, Weights
from dartsim.sim import SimLoop
from dartsim.sim.engine import FluidEngine
from dartsim.sim.gpu import H100
from dartsim.sim.model_worker import ModelWorker
from dartsim.sim.prompts import PromptModel


class Echo:
    """A model that says the attempt's number and notes what it was asked at once."""

    def __init__(self) -> None:
        self.batches: list[tuple[Version, list[int]]] = []
        self.known: list[Version] = [0]

    def add(self, weights: Weights) -> None:
        self.known.append(weights.version)

    def compute(self, requests: Sequence[Request], version: Version) -> list[Content]:
        assert version in self.known
        self.batches.append((version, [request.attempt.id for request in requests]))
        return [Content(f"say {request.attempt.id}", [1, 2], [-0.5, -0.1], [0.2, 0.3]) for request in requests]


def worker(model: Echo) -> ModelWorker:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return ModelWorker(
        0,
        FluidEngine(loop.env, H100),
        model=model,
        prompts=PromptModel(),
        reply_tokens=lambda: 100,
        reload_seconds=lambda: 5.0,
        prefix_cache=True,
    )


def request(number: int, turn: int = 0) -> Request:
    attempt = Attempt(number, Task("t", "Press."), 0, 0, number, 30, 0)
    return Request(attempt, turn, Observation(None, "Press."), [])


async def test_all_in_flight_are_computed_as_one_batch():
    model = Echo()
    engine = worker(model)
    replies = await asyncio.gather(*(engine.generate(request(n)) for n in range(5)))
    assert [reply.action for reply in replies] == [f"say {n}" for n in range(5)]
    assert model.batches == [(0, [0, 1, 2, 3, 4])]
    assert replies[0].response_tokens == 2
    assert list(replies[0].logprobs) == [-0.5, -0.1]


async def test_kept_requests_are_answered_by_the_version_that_is_served_then():
    model = Echo()
    engine = worker(model)
    asked = asyncio.create_task(engine.generate(request(1)))
    await asyncio.sleep(0.1)
    await engine.load(Weights(3), SyncMode.KEEP)
    reply = await asked
    assert (reply.oldest_version, reply.version) == (3, 3)
    assert model.batches == [(3, [1])]


async def test_a_cancelled_request_is_not_computed():
    model = Echo()
    engine = worker(model)
    asked = asyncio.create_task(engine.generate(request(1)))
    await asyncio.sleep(0.1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await engine.generate(request(2))
    assert model.batches == [(0, [2])]
