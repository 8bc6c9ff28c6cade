"""Deadlines: exact, without false alarms, and cheap."""

import asyncio
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


async def test_no_timer_is_left():
    loop = asyncio.get_running_loop()
    with Deadlines() as deadlines:
        for limit in (10.0, 20.0, 30.0):
            await call(deadlines.lane("step", limit), 1.0)
    assert loop.env.peek() == inf


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
