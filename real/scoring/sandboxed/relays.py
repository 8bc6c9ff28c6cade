"""Ports on this sandbox's loopback that lead to the desktop, through sockets of the driver.

There is no network in a sandbox. The driver listens on one socket for each port of the desktop while a getter runs, and
counts what passes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any

CHUNK_BYTES = 2**16


def open_all(desktop: Mapping[str, Any]) -> dict[str, int]:
    """Open a port for each socket that the driver named, and return the ports by name."""
    return {name: _open(path) for name, path in desktop["sockets"].items()}


def _open(path: str) -> int:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener, path), daemon=True).start()
    return int(listener.getsockname()[1])


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            near.close()
            far.close()
            continue
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side hung up, which ends both
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
