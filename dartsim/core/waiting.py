"""Waiting that is no fault: the deadline of a call stands still while it waits for its turn.

Who sets a deadline makes it known with ``pausable``; who waits in line below it, in the same task, does so within
``paused_deadline``. Across Ray, ``dartsim.real.ray_cluster.desktops`` carries the pauses to the control plane.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class PausableDeadline(Protocol):
    """A deadline that can stand still."""

    def pause(self) -> None:
        """Stand still from now on."""

    def resume(self) -> None:
        """Go on with the time that was left."""


_current: ContextVar[PausableDeadline | None] = ContextVar("deadline", default=None)


class pausable:  # noqa: N801 - it is used as a function
    """Let what is called within the block pause a deadline."""

    __slots__ = ("_deadline", "_token")

    def __init__(self, deadline: PausableDeadline) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._token = _current.set(self._deadline)

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


@contextmanager
def paused_deadline() -> Iterator[None]:
    """Let the caller's deadline stand still for the length of the block, if it has made one known."""
    deadline = _current.get()
    if deadline is None:
        yield
        return
    deadline.pause()
    try:
        yield
    finally:
        deadline.resume()
