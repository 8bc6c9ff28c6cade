"""The simulated world's clock: a SimPy environment with cheap cancellable timers on the same heap.

Coroutines wait for its events and processes (``wait``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        wake_in: Has the loop call ``wake(pause)`` after seconds of the world, for ``Pause``.
        on_failure: Called with a failed event that nothing waits for.
    """

    def __init__(self) -> None:
        simpy.Environment.__init__(self, 0.0)
        EventHeap.__init__(self)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.wake_in: Callable[..., Timer]
        self.on_failure: Callable[[simpy.Event], None] = _raise_failure

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: float = 0.0) -> None:
        """Let a SimPy event happen after ``delay`` seconds."""
        self.call_with_priority(self._now + delay, priority, self._happen, event)

    def _happen(self, event: Any) -> None:
        callbacks, event.callbacks = event.callbacks, None
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            self.on_failure(event)

    def step(self) -> None:
        """Process the next entry.

        Raises:
            EmptySchedule: If nothing is left.
            Forbidden: If an event loop drives this environment.
        """
        self._must_be_free()
        if self.peek() == Infinity:
            raise EmptySchedule
        self._step()

    def run(self, until: Any = None) -> Any:
        self._must_be_free()
        return super().run(until)

    def _must_be_free(self) -> None:
        if self.loop is not None:
            raise Forbidden("an event loop drives this environment: await instead of calling run() or step()")

    def _step(self) -> None:
        """Move the clock to the next entry and call it; ``peek`` has removed cancelled ones before it."""
        self._now = self.peek()
        timer = self.pop()
        call: Any = timer._call
        timer._call = None
        call[0](*call[1:])


def _raise_failure(event: simpy.Event) -> None:
    raise event._value


async def wait(event: simpy.Event) -> Any:
    """Wait for a SimPy event or process, and return its value.

    If the event fails, its exception is raised here. Cancelling the wait leaves the event unchanged; a resource request
    is withdrawn by its own ``with`` block.

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
        if future.done():  # cancelled at the same time
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
