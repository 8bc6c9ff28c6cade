"""The obvious way to put asyncio on SimPy: every handle is a SimPy event. A yardstick, nothing uses it."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

import simpy


class NaiveLoop(asyncio.AbstractEventLoop):
    """An asyncio event loop all of whose callbacks are callbacks of SimPy events.

    It lacks what a user would miss: generations, failures, cancelled timers that leave the heap.
    """

    def __init__(self) -> None:
        self.env = simpy.Environment()

    def time(self) -> float:
        """Return the virtual time, seconds."""
        return float(self.env.now)

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call by an event of now."""
        handle = asyncio.Handle(callback, args, self, context)
        event = self.env.event()
        event.callbacks.append(lambda _: _run(handle))
        event.succeed()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call by a time-out event."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.env.timeout(delay).callbacks.append(lambda _: _run(handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call by a time-out event."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave the event where it is."""

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Make a task."""
        return asyncio.Task(coro, loop=self, **kwargs)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Let failures be seen."""
        raise RuntimeError(context["message"]) from context.get("exception")

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end."""
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
