"""The event loop around desktops and pool: what is ready waits for it, first come, first served."""

import asyncio

from dartsim.sim.control_loop import ControlLoop
from dartsim.sim.measured_engines import BatchEngine


def control(seconds):
    return ControlLoop(asyncio.get_running_loop().env, seconds)


def noting(seen, name):
    return lambda *_: seen.append((asyncio.get_running_loop().time(), name))


async def test_replies_wait_for_the_work_that_follows_from_those_before_them():
    process, seen = control(0.5), []
    for name in "ab":
        process.reply(noting(seen, name))
    process.soon(noting(seen, "c"))
    await asyncio.sleep(0.75)
    process.reply(noting(seen, "d"))
    await asyncio.sleep(5.0)
    process.reply(noting(seen, "e"))
    await asyncio.sleep(1.0)
    assert seen == [(0.0, "a"), (0.5, "b"), (1.0, "c"), (1.0, "d"), (5.75, "e")]


async def test_a_turn_is_behind_all_that_is_ready():
    process = control(2.0)
    process.reply(lambda: None)
    process.reply(lambda: None)
    await process.turn()
    assert asyncio.get_running_loop().time() == 4.0


async def test_whoever_gave_a_turn_up_stops_nobody():
    process, seen = control(1.0), []
    process.reply(lambda: None)
    waiting = asyncio.ensure_future(process.turn())
    await asyncio.sleep(0.5)
    waiting.cancel()
    process.soon(noting(seen, "after"))
    await asyncio.sleep(1.0)
    assert seen == [(1.0, "after")]


async def test_a_batch_ends_when_the_loop_sees_it_and_the_next_one_begins_behind_its_replies():
    env = asyncio.get_running_loop().env
    process = ControlLoop(env, 1.0)
    engine = BatchEngine(env, batch_seconds=3.0, request_seconds=0.0, max_batch=2, control=process)
    seen = []
    for name in "abc":
        engine.submit(1, 0, 0, 1, lambda job, name=name: process.reply(noting(seen, name)))
    still = asyncio.ensure_future(engine.wait_until_still())
    await asyncio.sleep(2.0)
    process.reply(noting(seen, "other"))
    process.reply(noting(seen, "other"))
    await asyncio.sleep(20.0)
    # a and b are computed at 3 s, and seen at 4 s, behind two replies; c begins when both were seen to.
    assert seen == [(2.0, "other"), (3.0, "other"), (4.0, "a"), (5.0, "b"), (9.0, "c")]
    assert still.done()
