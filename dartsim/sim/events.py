"""The interface between SimPy and asyncio: coroutines wait for events, processes wait for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import simpy

from dartsim.sim.environment import SimEnvironment


async def wait(event: simpy.Event) -> Any:
    """Wait for a SimPy event or process, and return its value.

    If the event fails, its exception is raised here. Cancelling the wait detaches from the event and
    leaves it as it is; a request of a resource is withdrawn by its own ``with`` block.

    Raises:
        ValueError: If the event belongs to an environment that the running loop does not drive.
    """
    loop = asyncio.get_running_loop()
    if getattr(event.env, "loop", None) is not loop:
        raise ValueError(
            f"{event} belongs to an environment that the running loop does not drive; "
            f"make it in SimLoop.env, or in a BridgeEnvironment of this loop"
        )
    if event.processed:
        if event._ok:
            return event._value
        raise event._value
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(event: simpy.Event) -> None:
        if not event._ok:
            event.defused = True
        if future.done():  # cancelled at this very time
            return
        if event._ok:
            future.set_result(event._value)
        else:
            future.set_exception(event._value)

    event.callbacks.append(deliver)
    try:
        return await future
    except asyncio.CancelledError:
        if event.callbacks is not None:
            event.callbacks.remove(deliver)
        raise


class CoroutineEvent(simpy.Event):
    """A SimPy event that happens when a task ends, with its result or exception.

    Attributes:
        task: The task; cancelling it fails the event with ``asyncio.CancelledError``.
    """

    def __init__(self, env: SimEnvironment, task: asyncio.Task[Any]) -> None:
        """Follow ``task``."""
        super().__init__(env)
        self.task = task
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.fail(asyncio.CancelledError(f"{task.get_name()} was cancelled"))  # type: ignore[arg-type]
            return
        exc = task.exception()
        if exc is None:
            self.succeed(task.result())
        else:
            self.fail(exc)  # type: ignore[arg-type]


def as_event(env: SimEnvironment, coroutine: Coroutine[Any, Any, Any]) -> CoroutineEvent:
    """Start ``coroutine`` as a task and return an event for a SimPy process to yield."""
    if env.loop is None:
        coroutine.close()
        raise ValueError("as_event wants an environment that a loop drives: SimLoop.env or a BridgeEnvironment")
    return CoroutineEvent(env, env.loop.create_task(coroutine))
