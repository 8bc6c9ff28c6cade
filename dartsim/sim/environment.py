"""The simulated world's clock: a SimPy environment with cheap cancellable timers on the same heap.

Coroutines wait for its events (``wait``), and its processes for coroutines (``as_event``).

Everything that will happen is on one heap, ordered by (time, priority, number): SimPy events,
timers of the world (``call_at``), and the timers of the asyncio loop that drives the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import simpy
from simpy.core import EmptySchedule, Infinity
from simpy.events import NORMAL

from dartsim.core.errors import Forbidden

COMPACT_ABOVE = 64
"""Cancelled entries that are never worth a compaction of the heap."""


if TYPE_CHECKING:
    _Handle = asyncio.Handle
    _TimerHandle = asyncio.TimerHandle
else:
    # Inheriting for real would carry eight unused slots in every handle.
    _Handle = _TimerHandle = object


class Timer(_TimerHandle):
    """A call of the world at a set time; returned by ``SimEnvironment.call_at``."""

    __slots__ = ("_call", "_env", "_when")

    def __init__(self, call: tuple[Any, ...] | None, when: float, env: SimEnvironment) -> None:
        self._call = call
        self._when = when
        self._env = env

    def cancel(self) -> None:
        if self._call is not None:
            self._call = None
            env = self._env
            if self._when > env._now:
                env._entry_died()

    def cancelled(self) -> bool:
        return self._call is None

    def when(self) -> float:
        return self._when


class SoonHandle(_Handle):
    """A callback in the ready queue."""

    __slots__ = ("_call", "_context")

    def __init__(self, call: tuple[Any, ...] | None, context: Context) -> None:
        self._call = call
        self._context = context

    def cancel(self) -> None:
        self._call = None

    def cancelled(self) -> bool:
        return self._call is None

    def get_context(self) -> Context:
        return self._context

    def __repr__(self) -> str:
        return f"<SoonHandle {self._call or 'cancelled'}>"


class LaterHandle(Timer):
    """A callback on the heap, or in the ready queue once its time has come."""

    __slots__ = ("_context",)

    def __init__(self, call: tuple[Any, ...] | None, context: Context, when: float, env: SimEnvironment) -> None:
        self._call = call
        self._context = context
        self._when = when
        self._env = env

    def get_context(self) -> Context:
        return self._context

    def __repr__(self) -> str:
        return f"<LaterHandle at {self._when} {self._call or 'cancelled'}>"


class SimEnvironment(simpy.Environment):
    """A SimPy environment whose clock is a float and whose heap also holds plain timers.

    Attributes:
        loop: The asyncio loop that drives it, or None while it is used alone, as plain SimPy.
    """

    _now: float

    def __init__(self) -> None:
        super().__init__(0.0)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._num_dead = 0

    def call_at(self, when: float, fn: Callable[..., object], *args: Any) -> Timer:
        """Call ``fn(*args)`` at time ``when``, before any coroutine runs at that time.

        An exception of ``fn`` ends the simulation.
        """
        when = when + 0.0
        if not when >= self._now:
            raise ValueError(f"call_at({when}) lies in the past: now is {self._now}")
        timer = Timer((fn, *args), when, self)
        heappush(self._queue, (when, NORMAL, next(self._eid), timer))  # type: ignore[misc]
        return timer

    def call_in(self, delay: float, fn: Callable[..., object], *args: Any) -> Timer:
        """Call ``fn(*args)`` after ``delay`` seconds, before any coroutine runs at that time."""
        if not delay >= 0:
            raise ValueError(f"call_in wants a delay of at least 0 seconds, got {delay}")
        when = self._now + delay
        timer = Timer((fn, *args), when, self)
        heappush(self._queue, (when, NORMAL, next(self._eid), timer))  # type: ignore[misc]
        return timer

    def delay(self, seconds: float) -> float:
        """Return the latency to use where a model would use ``seconds``.

        Models of messages and machines pass their latencies through here, so that a perturbed
        simulation can stretch a few of them. Unperturbed, it is ``seconds``.
        """
        return seconds

    def step(self) -> None:
        """Process the next entry.

        Raises:
            EmptySchedule: If nothing is left.
            Forbidden: If an event loop drives this environment.
        """
        self._must_be_free()
        self.peek()  # throws cancelled timers out
        item: Any = self._queue[0][3] if self._queue else None
        if item.__class__ is Timer:
            self._step(_never)
        else:
            super().step()

    def run(self, until: Any = None) -> Any:
        self._must_be_free()
        return super().run(until)

    def peek(self) -> float:
        """Return the time of the next thing that will happen; infinity if nothing will."""
        queue = self._queue
        while queue:
            item = queue[0][3]
            if getattr(item, "_call", item) is not None:
                return queue[0][0]
            heappop(queue)
            self._num_dead -= 1
        return Infinity

    def _must_be_free(self) -> None:
        if self.loop is not None:
            raise Forbidden("an event loop drives this environment: await instead of calling run() or step()")

    def _step(self, on_failure: Callable[[simpy.Event], None]) -> None:
        """Process the next entry; ``on_failure`` gets a failed event that nothing waits for."""
        if self.peek() == Infinity:
            raise EmptySchedule
        item: Any
        self._now, _, _, item = heappop(self._queue)  # peek saw to it that no cancelled timer comes first
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

    def _entry_died(self) -> None:
        """Count one more cancelled entry and throw all of them out once they are the majority.

        The count may run high (an entry that died as its time came is not subtracted), never low; a
        compaction costs O(heap) at most once per heap/2 cancellations.
        """
        self._num_dead += 1
        queue = self._queue
        if self._num_dead > COMPACT_ABOVE and self._num_dead * 2 > len(queue):
            queue[:] = [entry for entry in queue if getattr(entry[3], "_call", entry) is not None]
            heapify(queue)
            self._num_dead = 0


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
