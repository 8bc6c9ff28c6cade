"""The event loop of a busy control plane, which does one thing after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment


class ControlLoop:
    """The event loop of a real control plane, where it is busy enough that what is ready waits for it.

    Replies, ends of batches and weights that were put in are seen when their turn comes, first come, first served.
    What follows from a reply (the action on a desktop of the same process, the score, the record that is stored, the
    next attempt) takes the loop ``seconds``; meanwhile the other replies are there, and yet their requests are live.
    """

    def __init__(self, env: SimEnvironment, seconds: float) -> None:
        self.seconds = seconds
        self._env = env
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...], float]] = deque()
        self._busy = False

    def reply(self, call: Callable[..., object], *args: Any) -> None:
        """Call once it is this reply's turn, and be at work with what follows from it."""
        self._append(call, args, self._env.delay(self.seconds))

    def soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call once it is its turn; that takes no time."""
        self._append(call, args, 0.0)

    async def turn(self) -> None:
        """Wait until all that is ready now has been seen to."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.soon(seen, passed)
        await passed

    def _append(self, call: Callable[..., object], args: tuple[Any, ...], seconds: float) -> None:
        self._ready.append((call, args, seconds))
        if not self._busy:
            self._busy = True
            # Not at once: those that are ready at the same instant line up first.
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        while self._ready:
            call, args, seconds = self._ready.popleft()
            call(*args)
            if seconds > 0.0:
                self._env.call_in(seconds, self._run)
                return
        self._busy = False


def seen(future: asyncio.Future[None]) -> None:
    """Complete a future, unless its waiter was cancelled."""
    if not future.done():
        future.set_result(None)
