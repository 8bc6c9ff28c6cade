"""``SharedEngine``: all at once and slower by their number, by cases that can be computed by hand."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.sim import run_virtual
from dartsim.sim.measured_engines import SharedEngine
from dartsim.sim.prompts import PromptModel
from dartsim.sim.worker import SimWorker
from dartsim.testing.ports import check_policy_worker


def now():
    return asyncio.get_running_loop().time()


def engine(*, alone=2.0, beside=1.0, **options):
    return SharedEngine(asyncio.get_running_loop().env, alone_seconds=alone, beside_seconds=beside, **options)


def ask(inner, ended, name, at=0.0):
    async def later():
        await asyncio.sleep(at)
        return inner.submit(10, 0, 1, 1, lambda job: ended.__setitem__(name, now()))

    return asyncio.get_running_loop().create_task(later())


async def test_each_slows_the_others_while_it_is_there():
    ended = {}
    inner = engine()
    ask(inner, ended, "a")
    ask(inner, ended, "b", 1.0)
    await asyncio.sleep(100.0)
    # a is half done at 1; then both at a third a second: a ends at 2.5, b is half done then and goes on alone.
    assert ended == {"a": pytest.approx(2.5), "b": pytest.approx(3.5)}


async def test_a_pause_freezes_and_a_factor_stretches():
    ended = {}
    inner = engine(factor=lambda: 1.5)
    ask(inner, ended, "a")
    await asyncio.sleep(1.0)
    inner.pause()
    await asyncio.sleep(10.0)
    assert ended == {}
    inner.resume()
    await asyncio.sleep(100.0)
    assert ended == {"a": pytest.approx(13.0)}


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=20), st.floats(0.1, 3.0), st.floats(0.0, 2.0))
def test_every_request_takes_between_alone_and_among_all(asked, alone, beside):
    ended = {}

    async def main():
        inner = engine(alone=alone, beside=beside)
        for number, at in enumerate(asked):
            ask(inner, ended, number, at)
        await asyncio.sleep(1e4)

    run_virtual(main())
    for number, at in enumerate(asked):
        assert alone - 1e-6 <= ended[number] - at <= alone + beside * (len(asked) - 1) + 1e-6


async def test_a_worker_with_such_an_engine_conforms():
    class Silent:
        def act(self, request):
            return "WAIT"

    worker = SimWorker(
        0,
        engine(),
        prompts=PromptModel(),
        policy=Silent(),
        reply_tokens=lambda: 10,
        reload_seconds=lambda: 5.0,
        prefix_cache=True,
    )
    await check_policy_worker(worker)
