"""SIGINT and SIGTERM: end a command cleanly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from dartsim.cli.console import errors, state

INTERRUPTED, TERMINATED = 130, 143

_terminated = False
"""Whether the current command received SIGTERM."""


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: write results, end workers and child processes.

    Cluster schedulers and ``timeout`` send SIGTERM. If a shell makes background jobs ignore Ctrl-C, it stays ignored,
    but SIGTERM works.
    """
    global _terminated  # a signal is the process's
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    _terminated = False
    before, blocked = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if blocked:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if blocked:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    global _terminated  # a signal is the process's
    _terminated = True
    handler = signal.getsignal(signal.SIGINT)  # a loop's own, while one runs
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


@contextmanager
def report_interrupt(message: str | Callable[[], str]) -> Iterator[None]:
    """Begin the work of a command; on Ctrl-C, print a message about its results, and exit.

    Raises:
        typer.Exit: With the exit code of an interrupted command.
    """
    state.working = True
    try:
        yield
    except KeyboardInterrupt:
        errors.say(message if isinstance(message, str) else message())
        raise typer.Exit(INTERRUPTED) from None


def exit_code(code: int) -> int:
    """Return the exit code, replaced by the signal's code if the command was interrupted."""
    return TERMINATED if code == INTERRUPTED and _terminated else code
