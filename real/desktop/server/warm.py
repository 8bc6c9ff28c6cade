# mypy: disable-error-code="import-not-found,import-untyped"
"""A process that has loaded pyautogui and keeps one forked child waiting for an action.

It is run as ``python -m dartsim.real.desktop.server.warm SOCKET``.
A new interpreter spends most of an action's time on imports. Here every action still gets its own process, forked from
a parent that has only done the imports, and its own X connection, so that it can neither affect the next action nor
hang the server:

    server --(code; stdout, stderr)--> parent --> waiting child: runs it as ``python -c`` would, and ends
    server <--(return code)----------- parent <-- its exit status;   meanwhile the next child gets ready

When the server closes its side, the child and its process group are killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

MAX_CODE_BYTES = 2**17
"""Longest accepted code: one message of the kernel's default size, with room for its header."""
PAUSE_SECONDS = 0.02
"""After each call of pyautogui, whose own pause is 0.1 s. Without one, a click that follows another at once is lost in
one of eight cases: the window manager still holds the pointer."""
NOT_RUN = b"not run"
"""The answer to an action that no child ran; the server then runs it without a warm interpreter."""


@dataclass(slots=True)
class Child:
    """A forked child. States: *waiting* (no client yet), *running* (``client`` is set)."""

    pid: int
    ended: int
    """File descriptor that becomes readable when the child ends."""
    orders: socket.socket
    client: socket.socket | None = None


class Parent:
    """Forks children and hands jobs to them."""

    def __init__(self, listener: socket.socket, prepare: Callable[[], None]) -> None:
        self._listener = listener
        self._prepare = prepare
        self._selector = selectors.DefaultSelector()
        self._waiting: Child | None = None

    def serve(self) -> NoReturn:
        """Serve until the server has ended, which closes the standard input."""
        self._listener.listen(16)
        self._selector.register(0, selectors.EVENT_READ, self._end)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        while True:
            if self._waiting is None:
                self._waiting = self._fork()
            for key, _ in self._selector.select():
                # A handler may have unregistered another descriptor that became ready at the same time.
                if key.fd in self._selector.get_map():
                    key.data()

    def _fork(self) -> Child:
        mine, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if not pid:
            mine.close()
            self._forget()
            os.setsid()
            _wait_and_run(childs, self._prepare)
        childs.close()
        child = Child(pid, os.pidfd_open(pid), mine)
        self._selector.register(child.ended, selectors.EVENT_READ, lambda: self._reap(child))
        return child

    def _end(self) -> NoReturn:
        """End together with the server; the waiting child ends when its socket closes."""
        sys.exit()

    def _forget(self) -> None:
        """In a child: close the parent's files, so that the server notices when the parent dies."""
        for key in list(self._selector.get_map().values()):
            if key.fileobj == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            elif isinstance(key.fileobj, int):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        code, files, _, _ = socket.recv_fds(client, MAX_CODE_BYTES, 2)
        child, self._waiting = self._waiting, None
        try:
            if child is None or len(files) != 2:
                raise ConnectionError("no child waits")
            socket.send_fds(child.orders, [code], files)
        except OSError:
            with contextlib.suppress(OSError):
                client.send(NOT_RUN)
            client.close()
            return
        finally:
            for file in files:
                os.close(file)
        child.client = client
        self._selector.register(client, selectors.EVENT_READ, lambda: self._give_up(child))

    def _give_up(self, child: Child) -> None:
        """Kill a child whose action the server has abandoned."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def _reap(self, child: Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        self._selector.unregister(child.ended)
        os.close(child.ended)
        child.orders.close()
        if child is self._waiting:
            self._waiting = None
        if child.client is not None:
            self._selector.unregister(child.client)
            with contextlib.suppress(OSError):
                child.client.send(str(os.waitstatus_to_exitcode(status)).encode())
            child.client.close()


def _wait_and_run(orders: socket.socket, prepare: Callable[[], None]) -> NoReturn:
    """In the child: get ready, wait for the code, run it, end. Never returns into the parent's loop."""
    returncode = 1
    problem = ""
    try:
        try:
            prepare()
        except Exception:
            # Reported for the next action, as a new interpreter would; exiting now would only start the next child.
            problem = traceback.format_exc()
        code, files, _, _ = socket.recv_fds(orders, MAX_CODE_BYTES, 2)
        if code:
            os.dup2(files[0], 1)
            os.dup2(files[1], 2)
            sys.stderr.write(problem)
            random.seed()  # as in a new interpreter; machines restored from one state must not draw alike
            returncode = 1 if problem else run_as_main(code.decode())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(returncode)


def run_as_main(code: str) -> int:
    """Run code as ``python -c`` does, up to the interpreter's end; return the exit code."""
    main = types.ModuleType("__main__")
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    sys.argv = ["-c"]
    returncode = 0
    try:
        exec(compile(code, "<string>", "exec"), main.__dict__)
    except SystemExit as exc:
        returncode = _exit_code(exc.code)
    except BaseException as exc:
        returncode = 1
        # Without this function's frame, which ``python -c`` does not have.
        own = exc.__traceback__
        sys.excepthook(type(exc), exc.with_traceback(own and own.tb_next), None)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the code's threads, as the interpreter's end does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return returncode


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 255
    print(code, file=sys.stderr)  # noqa: T201  what the interpreter does
    return 1


def _own_display() -> None:
    """Connect this child to the X server on its own; the parent's connection must not be shared."""
    import pyautogui
    from Xlib.display import Display

    backend = pyautogui._pyautogui_x11
    backend._display = Display(os.environ["DISPLAY"])


def main() -> None:
    """Import the modules that actions use, then serve."""
    import time  # noqa: F401  loaded for the actions

    import pyautogui

    pyautogui.PAUSE = PAUSE_SECONDS
    # The parent itself needs no connection; a child would otherwise inherit the socket.
    pyautogui._pyautogui_x11._display.close()
    sys.path[0] = ""  # the first entry of ``python -c``; ``-m`` has put the folder's path there
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    Path(sys.argv[1]).unlink(missing_ok=True)
    listener.bind(sys.argv[1])
    Parent(listener, _own_display).serve()


if __name__ == "__main__":
    main()
