"""Deadlines: exact, without false alarms, and cheap."""

import asyncio
import gc
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.rollout.deadlines import Deadlines
from dartsim.sim import run_virtual


def now():
    return asyncio.get_running_loop().time()


async def call(lane, seconds):
    lane.begin()
    await asyncio.sleep(seconds)
    lane.end()


async def expired(body):
    """Run ``body(deadlines)`` until a deadline ends it, and return the deadlines."""
    deadlines = Deadlines()

    async def main():
        with deadlines:
            await body(deadlines)

    with pytest.raises(TimeoutError):
        await main()
    return deadlines


async def test_the_first_lane_to_expire_is_the_cause_even_if_clean_up_outlasts_another():
    async def slow_to_go(deadlines):
        deadlines.lane("step", 10.0).begin()
        deadlines.lane("lease", 20.0).begin()
        try:
            await asyncio.sleep(1e9)
        except asyncio.CancelledError:
            await asyncio.sleep(30.0)
            raise

    deadlines = await expired(slow_to_go)
    assert now() == 40.0
    assert deadlines.expired.label == "step"


async def test_two_lanes_that_expire_at_once_are_one_time_out():
    async def body(deadlines):
        deadlines.lane("a", 10.0).begin()
        deadlines.lane("b", 10.0).begin()
        await asyncio.sleep(1e9)

    deadlines = await expired(body)
    assert deadlines.expired.label == "a"


async def test_cancelling_from_outside_is_no_time_out():
    async def main():
        with Deadlines() as deadlines:
            await call(deadlines.lane("step", 10.0), 1e9)

    task = asyncio.get_running_loop().create_task(main())
    await asyncio.sleep(5.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now() == 5.0


async def test_an_error_of_a_call_comes_through():
    async def main():
        with Deadlines() as deadlines:
            deadlines.lane("step", 10.0).begin()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await main()


def test_no_garbage_is_left():
    async def main():
        for _ in range(100):
            with Deadlines() as deadlines:
                deadlines.lane("lease", 100.0).begin()
                await call(deadlines.lane("step", 10.0), 1.0)

    gc.collect()
    run_virtual(main())
    assert gc.collect() < 100  # what a loop leaves, not what an attempt does


async def test_no_timer_is_left():
    loop = asyncio.get_running_loop()
    with Deadlines() as deadlines:
        for limit in (10.0, 20.0, 30.0):
            await call(deadlines.lane("step", limit), 1.0)
    assert loop.env.peek() == inf


async def test_a_lane_arms_a_timer_a_limit_and_not_a_call():
    loop = asyncio.get_running_loop()
    armed = []
    call_at = loop.call_at

    def counting(when, *args, **options):
        armed.append(when)
        return call_at(when, *args, **options)

    loop.call_at = counting
    with Deadlines() as deadlines:
        step = deadlines.lane("step", 100.0)
        for _ in range(1000):
            await call(step, 1.0)
    assert len(armed) <= 1000 / 100.0 + 2


# Durations are whole and the limit is not, so that no call ends in the very instant it is due.
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), st.sampled_from([2.5, 7.5, 10.5]))
def test_the_first_call_longer_than_the_limit_expires_and_no_other(calls, limit):
    async def main():
        try:
            with Deadlines() as deadlines:
                lane = deadlines.lane("step", limit)
                for gap, seconds in calls:
                    await asyncio.sleep(gap)
                    await call(lane, seconds)
        except TimeoutError:
            return now()
        return None

    wanted, time = None, 0.0
    for gap, seconds in calls:
        time += gap
        if seconds > limit:
            wanted = time + limit
            break
        time += seconds
    assert run_virtual(main()) == wanted


async def test_time_that_a_call_waits_for_its_turn_does_not_count():
    async def body(deadlines):
        lane = deadlines.lane("evaluate", 10.0)
        deadlines.lane("lease", 100.0).begin()
        lane.begin()
        await asyncio.sleep(6.0)
        deadlines.pause()
        await asyncio.sleep(1000.0)
        deadlines.resume()
        await asyncio.sleep(3.0)
        assert now() == 1009.0
        await asyncio.sleep(100.0)

    deadlines = await expired(body)
    assert deadlines.expired.label == "evaluate"
    assert now() == 1010.0
