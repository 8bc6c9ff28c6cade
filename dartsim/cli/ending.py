"""How a command ends when something else ends it: Ctrl-C, SIGTERM, a reader that has gone, a full disk."""

from __future__ import annotations

import errno
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

from dartsim.cli.console import drop_output, errors
from dartsim.cli.help import Group

INTERRUPTED, TERMINATED = 130, 143
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing to standard output can end with, apart from a reader that has gone."""

_terminated = False
"""Whether SIGTERM came: of this process there is one."""


@contextmanager
def ended_by_term() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, whatever that is at the moment: write what ran, end workers and children.

    Schedulers of clusters, and ``timeout``, end commands so. A shell that ignores Ctrl-C for what it starts in the
    background is obeyed: Ctrl-C stays without effect, SIGTERM does not.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are not ours to take
        yield
        return
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
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the end of a short piece of work, such as a database's transaction.

    Libraries clean up after an error of their own, and log what goes wrong when an interruption comes in between.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first, frame in came[:1]:
            handler = before[signal.Signals(first)]
            if callable(handler):
                handler(first, frame)
            elif handler is not signal.SIG_IGN:
                signal.raise_signal(first)


def exit_code(code: int) -> int:
    """Return the code to end with: of a command that was interrupted, it says by which signal."""
    return TERMINATED if code == INTERRUPTED and _terminated else code


def flush_output(code: int) -> int:
    """Write what standard output still holds, and return the code to end with.

    A reader that has gone (``| head``) wanted no more, and is no failure; a full disk is.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        drop_output()
        return output_failed(error)
    return code


def output_failed(error: OSError) -> int:
    """Say that standard output could not be written, and return the code to end with."""
    errors.print(f"[bold red]error:[/bold red] the output could not be written: {error.strerror}", highlight=False)
    return 1


def is_of_output(error: OSError) -> bool:
    """Whether standard output is what could not be written: such an error names no file."""
    return error.errno in NO_ROOM and error.filename is None


class Commands(Group):
    """All commands: what was interrupted always says so."""

    def invoke(self, context: Any) -> Any:
        """Run a command.

        Raises:
            typer.Exit: If it was interrupted.
        """
        try:
            return super().invoke(context)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's words, not the user's
            raise
        except KeyboardInterrupt:
            errors.print("interrupted: nothing was written")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            if not _output_closed():
                raise
            drop_output()
            return None


def _output_closed() -> bool:
    """Whether nobody reads standard output any more."""
    polled = select.poll()
    try:
        polled.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in polled.poll(0))
