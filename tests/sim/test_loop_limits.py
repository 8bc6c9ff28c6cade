"""How a simulation ends from outside: stall, limits, watchdog, Ctrl-C; and what it refuses."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import threading
import warnings

import pytest

from dartsim.core.errors import Forbidden, Stalled
from dartsim.sim import SimLoop, run_virtual, run_virtual_reported


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


async def consumer(queue):
    await queue.get()


async def items(event):
    yield 1
    await event.wait()


async def reader(event):
    async for _ in items(event):
        pass


def test_a_stall_names_each_task_and_the_line_where_it_waits():
    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(consumer(asyncio.Queue()), name="the consumer")
            group.create_task(reader(asyncio.Event()), name="the reader")
            await asyncio.sleep(5)

    with pytest.raises(Stalled) as caught:
        run_virtual(main())
    text = str(caught.value)
    assert "at t=5 s and 3 tasks wait" in text
    assert "  main (" in text
    assert "  the consumer (consumer) waits at" in text
    assert line_of(consumer, "queue.get()") + " in consumer" in text
    assert "asyncio/queues.py" in text
    assert line_of(items, "event.wait()") + " in items" in text


def test_a_stalled_run_leaves_nothing_behind():
    ended = []

    async def waiting():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(waiting())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Stalled):
            run_virtual(main())
        gc.collect()
    assert ended == [True]


def test_what_is_due_at_the_limit_still_happens():
    async def main():
        await asyncio.sleep(10)
        return "in time"

    assert run_virtual(main(), until=10) == "in time"


def test_the_watchdog_sees_through_heartbeats():
    async def heartbeat():
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def main():
        loop = asyncio.get_running_loop()
        beats = asyncio.create_task(heartbeat(), name="beats")
        for _ in range(5):
            await asyncio.sleep(50)
            loop.progress()
        await beats

    reports = []
    with pytest.raises(Stalled, match="no progress since t=250 s") as caught:
        run_virtual(main(), stall_seconds=60, on_end=reports.append)
    assert "beats (" in str(caught.value)
    assert reports[0].virtual_seconds == 310.0


def test_on_advance_is_called_at_most_every_so_often_and_changes_nothing():
    async def main():
        for _ in range(100):
            await asyncio.sleep(3)

    seen = []
    _, plain = run_virtual_reported(main())
    _, watched = run_virtual_reported(main(), on_advance=seen.append, every_seconds=60)
    assert watched == plain
    assert seen == [63.0, 126.0, 189.0, 252.0]


def test_the_first_ctrl_c_cancels_the_main_task_which_may_finish():
    async def main():
        asyncio.get_running_loop().env.call_in(5, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            return "report so far"

    assert run_virtual(main()) == "report so far"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_is_a_keyboard_interrupt_if_the_main_task_lets_it_be():
    cleaned = []

    async def main():
        asyncio.get_running_loop().env.call_in(5, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            cleaned.append(asyncio.get_running_loop().time())

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())
    assert cleaned == [6.0]


def test_the_second_ctrl_c_stops_a_main_task_that_does_not():
    async def main():
        for delay in (5, 6):
            asyncio.get_running_loop().env.call_in(delay, os.kill, os.getpid(), signal.SIGINT)
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() > 5:
                    raise

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())


async def test_to_thread_runs_inline_and_passes_arguments():
    where = []

    def work(a, *, b):
        where.append(threading.get_ident())
        return a + b

    assert await asyncio.to_thread(work, 1, b=2) == 3
    assert where == [threading.get_ident()]
    assert asyncio.get_running_loop().time() == 0.0


def test_thread_work_takes_its_modeled_time():
    asked = []

    def cost(fn, args):
        asked.append((fn, args))
        return 2.5

    async def main():
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(asyncio.to_thread(divmod, 7, 2), loop.run_in_executor(None, abs, -1))
        return results, loop.time()

    assert run_virtual(main(), executor_cost=cost) == ([(3, 1), 1], 2.5)
    assert asked == [(abs, (-1,)), (divmod, (7, 2))]  # gather starts the thread of a coroutine a generation later


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.start_server(print, port=0),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.create_subprocess_shell("true"),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
        lambda: asyncio.get_running_loop().sock_recv(None, 1),
    ],
)
async def test_real_io_is_refused(attempt):
    with pytest.raises(Forbidden, match="does not exist in virtual time: "):
        await attempt()


async def test_signal_handlers_and_readers_are_refused():
    with pytest.raises(Forbidden, match="Ctrl-C"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
    with pytest.raises(Forbidden, match="BridgeEnvironment"):
        asyncio.get_running_loop().add_reader(0, print)


def test_every_abstract_method_is_implemented_or_refused():
    missing = [
        name
        for name, method in vars(asyncio.AbstractEventLoop).items()
        if callable(method) and not name.startswith("_") and getattr(SimLoop, name) is method
    ]
    assert missing == []


async def test_callbacks_from_foreign_threads_are_refused():
    loop, caught = asyncio.get_running_loop(), []

    def foreign():
        try:
            loop.call_soon_threadsafe(print)
        except Forbidden as exc:
            caught.append(str(exc))

    thread = threading.Thread(target=foreign)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert "asyncio.to_thread" in caught[0]


async def test_the_world_cannot_be_run_by_hand_under_a_loop():
    env = asyncio.get_running_loop().env
    with pytest.raises(Forbidden, match="await instead"):
        env.run(until=5)
    with pytest.raises(Forbidden, match="await instead"):
        env.step()
