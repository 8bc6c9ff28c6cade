"""The loop's handles: what asyncio asks of ``Handle`` and ``TimerHandle``, and no more.

A handle holds its callback and arguments as one tuple, which is None once it is cancelled.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment

    _Handle = asyncio.Handle
    _TimerHandle = asyncio.TimerHandle
else:
    # Inheriting for real would carry eight unused slots in every handle.
    _Handle = _TimerHandle = object


class SoonHandle(_Handle):
    """A callback in the ready queue."""

    __slots__ = ("_call", "_context")

    def __init__(self, call: tuple[Any, ...] | None, context: Context) -> None:
        """Hold ``call`` (a function and its arguments), to be run in ``context``."""
        self._call = call
        self._context = context

    def cancel(self) -> None:
        """Make sure the callback is not called."""
        self._call = None

    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._call is None

    def get_context(self) -> Context:
        """The context the callback runs in."""
        return self._context

    def __repr__(self) -> str:
        """Say what is called."""
        return f"<SoonHandle {self._call or 'cancelled'}>"


class LaterHandle(_TimerHandle):
    """A callback on the heap, or in the ready queue once its time has come."""

    __slots__ = ("_call", "_context", "_env", "_when")

    def __init__(self, call: tuple[Any, ...] | None, context: Context, when: float, env: SimEnvironment) -> None:
        """Hold ``call`` (a function and its arguments) until ``when``, to be run in ``context``."""
        self._call = call
        self._context = context
        self._when = when
        self._env = env

    def cancel(self) -> None:
        """Make sure the callback is not called; harmless after it was."""
        if self._call is not None:
            self._call = None
            env = self._env
            if self._when > env._now:
                env._entry_died()

    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._call is None

    def when(self) -> float:
        """The time of the callback, seconds."""
        return self._when

    def get_context(self) -> Context:
        """The context the callback runs in."""
        return self._context

    def __repr__(self) -> str:
        """Say what is called, and when."""
        return f"<LaterHandle at {self._when} {self._call or 'cancelled'}>"
