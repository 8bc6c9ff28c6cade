"""SimPy events and processes awaited by coroutines."""

from __future__ import annotations

import asyncio

import pytest
import simpy

from dartsim.sim import SimEnvironment, run_virtual, wait


def world() -> SimEnvironment:
    return asyncio.get_running_loop().env


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_process_is_awaited_for_its_result():
    def process():
        yield world().timeout(1)
        yield world().timeout(2)
        return 42

    assert await wait(world().process(process())) == 42
    assert now() == 3.0


async def test_an_event_that_has_happened_is_returned_at_once():
    event = world().timeout(1, value="past")
    await asyncio.sleep(2)
    assert await wait(event) == "past"
    assert now() == 2.0


async def test_a_failing_process_raises_where_it_is_awaited():
    def process():
        yield world().timeout(1)
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await wait(world().process(process()))
    failed = world().event()
    failed.fail(LookupError("again"))
    with pytest.raises(LookupError, match="again"):
        await wait(failed)
    with pytest.raises(LookupError, match="again"):
        await wait(failed)


def test_a_failure_nobody_awaits_fails_the_run():
    async def main():
        world().event().fail(LookupError("lost"))
        await asyncio.sleep(1)

    with pytest.raises(LookupError, match="lost"):
        run_virtual(main())


async def test_cancelling_a_wait_withdraws_the_request():
    resource = simpy.Resource(world(), capacity=1)

    async def hold(seconds):
        with resource.request() as request:
            await wait(request)
            await asyncio.sleep(seconds)

    holder = asyncio.create_task(hold(10))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await hold(1)
    assert len(resource.queue) == 0
    await holder
    assert (now(), resource.count) == (10.0, 0)


async def test_cancelling_in_the_instant_of_the_grant_gives_the_resource_back():
    resource = simpy.Resource(world(), capacity=1)

    async def hold():
        with resource.request() as request:
            await wait(request)

    first = resource.request()
    waiting = asyncio.create_task(hold())
    await asyncio.sleep(1)
    resource.release(first)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (resource.count, len(resource.queue)) == (0, 0)


async def test_a_cancelled_wait_leaves_the_event_to_the_others():
    event = world().event()
    gone, stays = asyncio.create_task(wait(event)), asyncio.create_task(wait(event))
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.sleep(1)
    event.succeed("still")
    assert await stays == "still"
    assert gone.cancelled()


async def test_cancelling_after_the_event_but_before_waking_up_is_a_cancellation():
    event = world().event()
    waiting = asyncio.create_task(wait(event))
    await asyncio.sleep(1)
    event.succeed()
    world().call_in(0, waiting.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_failure_in_the_instant_of_a_cancellation_harms_nobody():
    event = world().event()
    waiting = asyncio.create_task(wait(event))
    await asyncio.sleep(1)
    event.fail(LookupError("nobody is left to hear this"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_event_of_another_environment_is_refused():
    with pytest.raises(ValueError, match="does not drive"):
        await wait(simpy.Environment().timeout(1))


def test_an_environment_alone_is_plain_simpy_with_timers():
    env, log = SimEnvironment(), []

    def process():
        for _ in range(3):
            yield env.timeout(2)
            log.append(("process", env.now))

    env.process(process())
    env.call_in(3, log.append, "timer")
    env.call_in(1, log.append, "never").cancel()
    env.run(until=5)
    assert log == [("process", 2.0), "timer", ("process", 4.0)]
    assert env.now == 5.0
    env.run()
    assert env.now == 6.0
    assert env.peek() == float("inf")
    with pytest.raises(simpy.core.EmptySchedule):
        env.step()
