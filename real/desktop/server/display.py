# mypy: disable-error-code="import-not-found,import-untyped"
"""The one connection to the X server, and its lock.

An X client per request is what kills OSWorld's server after some 250 screenshots; here there is one for all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from Xlib import error
from Xlib.display import Display


class XConnection:
    """Lends the connection to one caller at a time; connects at first use, and again after the server went away.

    Args:
        name: The display, such as ``:99``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.RLock()
        self._display: Any = None

    @contextmanager
    def use(self) -> Iterator[Any]:
        """Lend the connection.

        Raises:
            Xlib.error.ConnectionClosedError: If the X server died. One that hangs makes the caller hang.
        """
        with self._lock:
            if self._display is None:
                self._display = self._connect()
            try:
                yield self._display
            except (error.ConnectionClosedError, OSError):
                self._drop()
                raise

    def _connect(self) -> Any:
        display = Display(self.name)
        if not display.has_extension("XFIXES"):
            raise RuntimeError(f"{self.name} has no XFIXES extension, which tells what the cursor looks like")
        # The extension refuses to serve a client that has not asked for its version.
        display.xfixes_query_version()
        return display

    def _drop(self) -> None:
        display, self._display = self._display, None
        try:
            display.close()
        except (error.ConnectionClosedError, OSError):
            return  # it was closed by the other side
