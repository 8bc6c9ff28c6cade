# mypy: disable-error-code="import-not-found,import-untyped"
"""The X server: one shared connection, and the windows as the window manager reports them (EWMH).

An X client per request is what kills OSWorld's server after some 250 screenshots; here there is one for all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from Xlib import X, error
from Xlib.display import Display
from Xlib.protocol import event

_FROM_A_PAGER = 2  # EWMH: who asks; window managers obey a pager where they would only flash for an application


class XConnection:
    """Lends the connection to one caller at a time; connects at first use, and again after the server went away."""

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
                self._display = Display(self.name)
            try:
                yield self._display
            except (error.ConnectionClosedError, OSError):
                self._drop()
                raise

    def _drop(self) -> None:
        display, self._display = self._display, None
        try:
            display.close()
        except (error.ConnectionClosedError, OSError):
            return  # it was closed by the other side


@dataclass(frozen=True, slots=True)
class XWindow:
    """A managed window. ``classes`` is instance and class, as in ``galculator.Galculator``."""

    id: int
    title: str
    classes: tuple[str, ...]

    def matches(self, name: str, *, strict: bool, by_class: bool) -> bool:
        """Return whether ``name`` is part of this window's title, in any case; or, if strict, the whole title."""
        own = ".".join(self.classes) if by_class else self.title
        return own == name if strict else name.lower() in own.lower()


class Windows:
    """The window manager's windows."""

    def __init__(self, connection: XConnection) -> None:
        self._connection = connection

    def all(self) -> list[XWindow]:
        """Return the managed windows, oldest first."""
        with self._connection.use() as display:
            numbers = _property(display, display.screen().root, "_NET_CLIENT_LIST")
            return [window for window in (_describe(display, number) for number in numbers or ()) if window is not None]

    def find(self, name: str, *, strict: bool = False, by_class: bool = False) -> XWindow | None:
        """Return the oldest window that ``name`` means, or None."""
        return next((window for window in self.all() if window.matches(name, strict=strict, by_class=by_class)), None)

    def activate(self, window: XWindow) -> None:
        """Raise a window and give it the focus."""
        self._tell(window, "_NET_ACTIVE_WINDOW", (_FROM_A_PAGER, X.CurrentTime, 0, 0, 0))

    def close(self, window: XWindow) -> None:
        """Ask a window to close, as its close button does."""
        self._tell(window, "_NET_CLOSE_WINDOW", (X.CurrentTime, _FROM_A_PAGER, 0, 0, 0))

    def size_of_class(self, name: str) -> tuple[int, int] | None:
        """Return width and height of the oldest window of a class, pixels; None if there is none."""
        with self._connection.use() as display:
            for window in self.all():
                if name.lower() in (own.lower() for own in window.classes):
                    try:
                        geometry = display.create_resource_object("window", window.id).get_geometry()
                    except error.XError:
                        continue  # it closed just now
                    return geometry.width, geometry.height
        return None

    def _tell(self, window: XWindow, message: str, data: tuple[int, ...]) -> None:
        with self._connection.use() as display:
            sent = event.ClientMessage(
                window=display.create_resource_object("window", window.id),
                client_type=display.intern_atom(message),
                data=(32, data),
            )
            mask = X.SubstructureRedirectMask | X.SubstructureNotifyMask
            display.screen().root.send_event(sent, event_mask=mask)
            display.sync()


def _property(display: Any, window: Any, name: str) -> Any:
    answer = window.get_full_property(display.intern_atom(name), X.AnyPropertyType)
    return None if answer is None else answer.value


def _describe(display: Any, number: int) -> XWindow | None:
    window = display.create_resource_object("window", number)
    try:
        title = _property(display, window, "_NET_WM_NAME") or _property(display, window, "WM_NAME") or b""
        classes = tuple(window.get_wm_class() or ())
    except error.XError:
        return None  # it closed just now
    return XWindow(number, title.decode(errors="replace") if isinstance(title, bytes) else str(title), classes)
