"""Waiting that is not a fault: a call's deadline pauses while the call waits for its turn.

Code that sets a deadline registers it with ``pausable``; code that queues below it, in the same task, does so within
``paused_deadline``. Across Ray, ``dartsim.real.ray_cluster.desktops`` carries the pauses to the control plane.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class PausableDeadline(Protocol):
    """A deadline that can be paused."""

    def pause(self) -> None:
        """Stop counting."""

    def resume(self) -> None:
        """Continue with the remaining time."""


_current: ContextVar[PausableDeadline | None] = ContextVar("deadline", default=None)


class pausable:  # noqa: N801 - used like a function
    """Let calls inside the block pause a deadline."""

    __slots__ = ("_deadline", "_token")

    def __init__(self, deadline: PausableDeadline) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._token = _current.set(self._deadline)

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


@contextmanager
def paused_deadline() -> Iterator[None]:
    """Pause the caller's deadline for the length of the block, if it has registered one."""
    deadline = _current.get()
    if deadline is None:
        yield
        return
    deadline.pause()
    try:
        yield
    finally:
        deadline.resume()
