"""``Pause``: a task's wait for a time of the world, as one event. Compiled in wheels.

A timer that completes a future makes two events: itself, and the wake-up that the future then schedules. But a task
waits for any object with a future's methods, and a ``Pause`` lets the wake-up itself be the timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment


class Pause:
    """What ``await Pause(env, seconds)`` waits for; if the task is canceled, it leaves no timer.

    States: new, waiting, done (by its timer, by ``set_result``, or canceled).
    """

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_done", "_env", "_seconds", "_timer", "_wake")

    def __init__(self, env: SimEnvironment, seconds: float) -> None:
        self._asyncio_future_blocking = False
        self._env: Any = env
        self._seconds = seconds
        self._wake: Any = None
        self._context: Any = None
        self._timer: Any = None
        self._done = False
        self._cancelled = False

    def hold(self) -> None:
        """Remove the timer: from now on, only ``set_result`` ends the wait."""
        self._timer.cancel()

    def set_result(self, result: None) -> None:
        """End the wait now."""
        self._done = True
        self._timer.cancel()
        self._env.loop.call_soon(self._wake, self, context=self._context)

    def done(self) -> bool:
        """Return whether ``set_result`` or ``cancel`` has ended it."""
        return self._done

    # What asyncio's tasks call.

    def __await__(self) -> Generator[Pause, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self._env.loop
        return loop

    def add_done_callback(self, wake: Any, *, context: Any) -> None:
        self._wake = wake
        self._context = context
        self._timer = self._env.wake_in(self._seconds, wake, self, context=context)

    def cancel(self, msg: object = None) -> bool:
        if self._done:
            return False
        self._cancelled = True
        self.set_result(None)
        return True

    def result(self) -> None:
        self._timer = None  # it refers to the pause: a cycle, which only the collector would free
        if self._cancelled:
            raise asyncio.CancelledError
