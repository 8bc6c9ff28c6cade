"""Timers per CPU second: many tasks that only sleep, on every loop with virtual time."""

from __future__ import annotations

import asyncio
import time
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import numpy as np
import simpy

from dartsim.sim import run_virtual


class NaiveLoop(asyncio.AbstractEventLoop):
    """An asyncio event loop all of whose callbacks are callbacks of SimPy events.

    It lacks what a user would miss: generations, failures, cancelled timers that leave the heap.
    """

    def __init__(self) -> None:
        self.env = simpy.Environment()

    def time(self) -> float:
        return float(self.env.now)

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self.env.timeout(0.0).callbacks.append(lambda _: _run(handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.env.timeout(delay).callbacks.append(lambda _: _run(handle))
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave the event where it is."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **kwargs)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise RuntimeError(context["message"]) from context.get("exception")

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        events._set_running_loop(self)
        try:
            task = self.create_task(coroutine)
            while not task.done():
                self.env.step()
            return task.result()
        finally:
            events._set_running_loop(None)


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


Delays = list[list[float]]


def delays(num_tasks: int, sleeps: int) -> Delays:
    """Return the lengths of every task's sleeps, seconds; always the same."""
    rng = np.random.default_rng(0)
    drawn: Delays = rng.uniform(0.5, 1.5, (num_tasks, sleeps)).tolist()
    return drawn


async def sleepers(tasks: Delays) -> None:
    """Let every task sleep its sleeps, on whatever loop runs."""

    async def sleeper(lengths: list[float]) -> None:
        for seconds in lengths:
            await asyncio.sleep(seconds)

    async with asyncio.TaskGroup() as group:
        for lengths in tasks:
            group.create_task(sleeper(lengths))


def on_simloop(tasks: Delays) -> None:
    """Run on this package's loop."""
    run_virtual(sleepers(tasks))


def on_simpy(tasks: Delays) -> None:
    """Run as SimPy processes, without asyncio."""

    def sleeper(env: simpy.Environment, lengths: list[float]) -> Generator[simpy.Event, Any, None]:
        for seconds in lengths:
            yield env.timeout(seconds)

    env = simpy.Environment()
    for lengths in tasks:
        env.process(sleeper(env, lengths))
    env.run()


def on_naive(tasks: Delays) -> None:
    """Run on asyncio over SimPy events."""
    NaiveLoop().run(sleepers(tasks))  # type: ignore[abstract]


def on_aiotools(tasks: Delays) -> None:
    """Run on asyncio with a patched selector and clock."""
    from aiotools import VirtualClock

    async def main() -> None:
        with VirtualClock().patch_loop():
            await sleepers(tasks)

    asyncio.run(main())


def on_trio(tasks: Delays) -> None:
    """Run the same on trio with its mock clock."""
    import trio
    from trio.testing import MockClock

    async def sleeper(lengths: list[float]) -> None:
        for seconds in lengths:
            await trio.sleep(seconds)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for lengths in tasks:
                nursery.start_soon(sleeper, lengths)

    trio.run(main, clock=MockClock(autojump_threshold=0))


LOOPS: dict[str, Callable[[Delays], None]] = {
    "simloop": on_simloop,
    "simpy": on_simpy,
    "naive": on_naive,
    "aiotools": on_aiotools,
    "trio": on_trio,
}
"""By the names of the recorded figures."""


def timers_per_second(*, num_tasks: int, sleeps: int, repeats: int) -> dict[str, list[float]]:
    """Return the rates of every loop, one per repeat; the loops alternate.

    A loop whose package is not installed is left out.
    """
    tasks = delays(num_tasks, sleeps)
    rates: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, run in LOOPS.items():
            with suppress(ModuleNotFoundError):
                started = time.process_time()
                run(tasks)
                seconds = time.process_time() - started
                rates.setdefault(name, []).append(num_tasks * sleeps / seconds)
    return rates
