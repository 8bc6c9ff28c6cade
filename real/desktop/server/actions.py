"""The server's side of the warm interpreters: keeps their parent alive and hands actions to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from dartsim.real.desktop.server.commands import CommandResult, memory_file, read_back
from dartsim.real.desktop.server.warm import MAX_CODE_BYTES, NOT_RUN


class WarmPythons:
    """Runs ``python -c code`` in a forked interpreter that has pyautogui loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.parent: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the parent process, or start it again if it has ended."""
        with self._lock:
            if self.parent is None or self.parent.poll() is not None:
                if self.parent is not None and self.parent.stdin is not None:
                    self.parent.stdin.close()
                command = [sys.executable, "-m", "dartsim.real.desktop.server.warm", str(self._path)]
                self._path.unlink(missing_ok=True)
                # The pipe stays open while this server runs; when it closes, the parent ends.
                self.parent = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def run(self, code: str, seconds: float) -> CommandResult | None:
        """Run an action.

        Returns:
            Its result; None if no warm interpreter ran it (the code is too long, or none is up yet).

        Raises:
            subprocess.TimeoutExpired: At the limit; the action was killed.
            ConnectionError: If the parent process ended during the action, whose effect is unknown.
        """
        data = code.encode()
        if not data or len(data) > MAX_CODE_BYTES:
            return None
        with memory_file("stdout") as output, memory_file("stderr") as errors:
            try:
                connection = self._connect()
            except OSError:
                self.start()
                return None
            with connection:
                connection.settimeout(seconds)
                try:
                    socket.send_fds(connection, [data], [output.fileno(), errors.fileno()])
                    status = connection.recv(16)
                except TimeoutError as exc:
                    raise subprocess.TimeoutExpired(["python", "-c", code], seconds) from exc
                except OSError:
                    status = b""
            if status == NOT_RUN:
                return None
            if not status:
                # It may have run, and an action must not run twice.
                raise ConnectionError("the parent of the warm interpreters ended during the action")
            return CommandResult(read_back(output), read_back(errors), int(status))

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(os.fspath(self._path))
        except OSError:
            connection.close()
            raise
        return connection
