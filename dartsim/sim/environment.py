"""The simulated world's clock: a SimPy environment with cheap cancellable timers on the same heap.

Coroutines wait for its events (``wait``), and its processes for coroutines (``as_event``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import simpy
from simpy.core import EmptySchedule, Infinity
from simpy.events import NORMAL

from dartsim.core.errors import Forbidden
from dartsim.sim.event_heap import EventHeap, Timer


class SimEnvironment(EventHeap, simpy.Environment):
    """A SimPy environment whose clock is a float and whose heap also holds plain timers.

    Attributes:
        loop: The asyncio loop that drives it, or None while it is used alone, as plain SimPy.
    """

    def __init__(self) -> None:
        simpy.Environment.__init__(self, 0.0)
        EventHeap.__init__(self)
        self.loop: asyncio.AbstractEventLoop | None = None

    def step(self) -> None:
        """Process the next entry.

        Raises:
            EmptySchedule: If nothing is left.
            Forbidden: If an event loop drives this environment.
        """
        self._must_be_free()
        item = self.head()
        if item.__class__ is Timer:
            self._step(_never)
            return
        if item is not None:
            self._queue.append((self.peek(), NORMAL, 0, self.pop()))  # SimPy's own queue, for its own step
        simpy.Environment.step(self)

    def run(self, until: Any = None) -> Any:
        self._must_be_free()
        return super().run(until)

    def _must_be_free(self) -> None:
        if self.loop is not None:
            raise Forbidden("an event loop drives this environment: await instead of calling run() or step()")

    def _step(self, on_failure: Callable[[simpy.Event], None]) -> None:
        """Process the next entry; ``on_failure`` gets a failed event that nothing waits for."""
        when = self.peek()
        if when == Infinity:
            raise EmptySchedule
        self._now = when
        item = self.pop()  # peek saw to it that no cancelled timer comes first
        if item.__class__ is Timer:
            call: Any = item._call
            item._call = None
            call[0](*call[1:])
            return
        callbacks, item.callbacks = item.callbacks, None
        for callback in callbacks:
            callback(item)
        if not item._ok and not hasattr(item, "_defused"):
            on_failure(item)


def _never(event: simpy.Event) -> None:
    raise AssertionError(f"a timer failed as the event {event}")


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
    """A SimPy event that happens when a task ends, with its result or exception."""

    def __init__(self, env: SimEnvironment, task: asyncio.Task[Any]) -> None:
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
