"""The loop's own rules: one heap, generations, exact times, clean ends."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from dartsim.sim import SimLoop, run_virtual
from dartsim.sim.event_heap import COMPACT_ABOVE


def loop() -> SimLoop:
    return asyncio.get_running_loop()


async def test_whole_numbers_of_seconds_keep_the_clock_a_float():
    fired = loop().create_future()
    loop().call_at(5, fired.set_result, None)
    await fired
    assert isinstance(loop().time(), float)


async def test_timers_of_one_instant_fire_in_the_order_they_were_set():
    log = []
    for name in "abc":
        loop().call_later(1, log.append, name)
    loop().call_at(1, log.append, "d")
    await asyncio.sleep(2)
    assert log == ["a", "b", "c", "d"]


async def test_the_world_settles_before_coroutines_go_on():
    log = []
    loop().call_later(1, log.append, "callback")
    loop().env.call_in(1, log.append, "world timer")
    loop().env.timeout(1).callbacks.append(lambda _: log.append("SimPy event"))
    await asyncio.sleep(1)
    assert log == ["world timer", "SimPy event", "callback"]


async def test_a_cancelled_timer_does_not_fire_and_does_not_move_time():
    log = []
    loop().call_later(5, log.append, "callback").cancel()
    timer = loop().env.call_in(7, log.append, "world")
    timer.cancel()
    assert timer.cancelled()
    assert timer.when() == 7.0
    await asyncio.sleep(1)
    assert log == []
    assert loop().time() == 1.0
    with pytest.raises(ValueError, match="past"):
        loop().env.call_at(0.5, log.append, "too late")
    with pytest.raises(ValueError, match="at least 0"):
        loop().env.call_in(-1, log.append, "too late")


async def test_cancelled_timers_do_not_fill_the_heap():
    sizes = []
    for _ in range(2000):
        async with asyncio.timeout(3600):
            await asyncio.sleep(1)
        sizes.append(loop().env.num_entries)
    assert max(sizes) <= 2 * COMPACT_ABOVE


async def test_compaction_keeps_every_live_timer():
    log = []
    handles = [loop().call_later(i + 1, log.append, i) for i in range(1000)]
    for i, handle in enumerate(handles):
        if i % 7:
            handle.cancel()
    assert loop().env.num_entries < 500
    await asyncio.sleep(2000)
    assert log == list(range(0, 1000, 7))


async def test_what_has_run_is_dropped_at_once():
    class Payload:
        pass

    def make(hand_over):
        payload = Payload()
        hand_over(lambda payload: None, payload)
        return weakref.ref(payload)

    env = loop().env
    made = [make(loop().call_soon), make(lambda *call: loop().call_later(1, *call))]
    made += [make(lambda *call: env.call_in(1, *call)), make(lambda fn, value: env.timeout(1, value))]
    alive = []
    env.call_in(5, lambda: alive.extend(ref() for ref in made))
    await asyncio.sleep(10)
    assert alive == [None] * 4


def test_an_exception_in_a_callback_fails_the_run():
    async def main():
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError) as caught:
        run_virtual(main())
    assert "nobody caught this: Exception in callback" in caught.value.__notes__[0]


def test_an_exception_in_a_task_nobody_awaits_fails_the_run():
    async def fail():
        raise LookupError("lost")

    async def main():
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(1)

    with pytest.raises(LookupError, match="lost"):
        run_virtual(main())


def test_several_unhandled_exceptions_are_all_reported():
    async def main():
        for exc in (KeyError("a"), IndexError("b")):
            asyncio.get_running_loop().call_soon(_raise, exc)
        await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(main())
    assert [type(exc) for exc in caught.value.exceptions] == [KeyError, IndexError]


def _raise(exc):
    raise exc


def test_an_exception_in_the_world_fails_the_run_at_once():
    async def main():
        asyncio.get_running_loop().env.call_in(3, lambda: 1 // 0)
        await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main())


def test_an_exception_handler_sees_what_nobody_caught():
    seen = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
        asyncio.get_running_loop().call_soon(_raise, KeyError("handled"))
        await asyncio.sleep(1)
        return "on it went"

    assert run_virtual(main()) == "on it went"
    assert [type(exc) for exc in seen] == [KeyError]


def test_left_over_tasks_are_cancelled_and_awaited():
    log = []

    async def worker():
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(2)
            log.append(asyncio.get_running_loop().time())

    async def main():
        asyncio.create_task(worker())  # noqa: RUF006
        await asyncio.sleep(1)
        return "done"

    assert run_virtual(main()) == "done"
    assert log == [3.0]


def test_asynchronous_generators_are_closed_at_the_end():
    log = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            log.append("closed")

    kept = []

    async def main():
        agen = numbers()
        kept.append(agen)
        return await anext(agen)

    assert run_virtual(main()) == 1
    assert log == ["closed"]


def test_an_error_of_the_cleanup_does_not_hide_the_first_error():
    async def stubborn():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def main():
        asyncio.create_task(stubborn())  # noqa: RUF006
        await asyncio.sleep(1)
        raise LookupError("first")

    with pytest.raises(LookupError, match="first"):
        run_virtual(main())


def test_a_failure_during_the_final_cancellation_is_reported():
    async def bad():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise LookupError("while cleaning up") from None

    async def main():
        asyncio.create_task(bad())  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(LookupError, match="while cleaning up"):
        run_virtual(main())


def test_a_simulation_inside_another_is_refused():
    async def inner():
        pass

    async def main():
        coroutine = inner()
        try:
            run_virtual(coroutine)
        finally:
            coroutine.close()

    with pytest.raises(RuntimeError, match="while another loop is running"):
        run_virtual(main())


def test_a_closed_loop_refuses_work():
    closed = SimLoop()
    closed.close()
    closed.close()
    for refused in (lambda: closed.call_soon(print), lambda: closed.call_later(1, print), closed.run_forever):
        with pytest.raises(RuntimeError, match="closed"):
            refused()


def test_stop_ends_run_forever_after_the_present_generation():
    log = []
    bare = SimLoop()
    bare.call_later(1, bare.stop)
    bare.call_later(1, log.append, "same generation")
    bare.call_later(2, log.append, "later")
    bare.run_forever()
    assert log == ["same generation"]
    assert bare.time() == 1.0
    bare.stop()
    bare.run_forever()
    assert bare.time() == 1.0
    bare.close()


def test_a_bare_loop_keeps_unhandled_exceptions_and_goes_on():
    bare = SimLoop()
    bare.call_soon(_raise, KeyError("kept"))
    bare.run_until_complete(asyncio.sleep(1))
    assert [type(exc) for exc in bare.unhandled] == [KeyError]
    bare.close()
