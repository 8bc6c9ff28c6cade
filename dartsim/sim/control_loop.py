"""``ControlLoop``: the event loop of a busy control plane, which handles one event at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment


class ControlLoop:
    """The event loop of a real control plane that is so busy that events queue for it.

    Replies, ends of batches and loaded weights are handled first come, first served. The consequences of a reply (the
    action on a desktop in the same process, the score, the stored record, the next attempt) take ``seconds``; meanwhile
    other replies wait, and their requests still count as live.
    """

    def __init__(self, env: SimEnvironment, seconds: float) -> None:
        self.seconds = seconds
        self._env = env
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...], float]] = deque()
        self._busy = False

    def reply(self, call: Callable[..., object], *args: Any) -> None:
        """Call when it is this reply's turn; its consequences then keep the loop busy."""
        self._append(call, args, self._env.delay(self.seconds))

    def soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call in turn; the call takes no time."""
        self._append(call, args, 0.0)

    async def turn(self) -> None:
        """Wait until everything queued now has been handled."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.soon(complete, passed)
        await passed

    def _append(self, call: Callable[..., object], args: tuple[Any, ...], seconds: float) -> None:
        self._ready.append((call, args, seconds))
        if not self._busy:
            self._busy = True
            # Not at once, so that everything ready at this instant is queued first.
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        while self._ready:
            call, args, seconds = self._ready.popleft()
            call(*args)
            if seconds > 0.0:
                self._env.call_in(seconds, self._run)
                return
        self._busy = False


def complete(future: asyncio.Future[None]) -> None:
    """Complete a future unless its waiter was cancelled."""
    if not future.done():
        future.set_result(None)
