"""``TimeLimit``: ``asyncio.timeout`` without its coroutines. Compiled in wheels.

Every attempt has four limits, and entering and leaving ``asyncio.timeout`` takes ten calls although it never waits.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self


class TimeLimit:
    """Cancels its ``with`` block after a time, and raises ``TimeoutError`` in place of the cancellation.

    Args:
        seconds: Limit, from the beginning of the block; None: no limit.

    Attributes:
        expired: Whether time ran out before the block ended.

    Example:
        with TimeLimit(60.0):
            desktop = await provider.start(slot)
    """

    __slots__ = ("_cancelling", "_handle", "_loop", "_seconds", "_task", "expired")

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._loop: Any = None
        self._task: Any = None
        self._handle: Any = None
        self._cancelling = 0
        self.expired = False

    def __enter__(self) -> Self:
        self._loop = loop = asyncio.get_running_loop()
        self._task = task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a time limit needs a task, which it can cancel")
        self._cancelling = task.cancelling()
        seconds = self._seconds
        if seconds is not None:
            if seconds > 0.0:
                self._handle = loop.call_at(loop.time() + seconds, self._expire)
            else:
                self.end_now()
        return self

    def end_now(self) -> None:
        """Expire as soon as the loop gets to it; does nothing outside the block."""
        self.lift()
        if self._task is not None:
            self._handle = self._loop.call_soon(self._expire)

    def lift(self) -> None:
        """Remove the limit, unless it has expired."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.lift()
        task, self._task = self._task, None
        if self.expired and task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            timeout = TimeoutError()
            timeout.__cause__ = error  # mypyc ignores ``from``
            raise timeout

    def _expire(self) -> None:
        self._handle = None
        if not self.expired:
            self.expired = True
            self._task.cancel()
