# mypy: disable-error-code="import-not-found,import-untyped"
"""The X server: one shared connection, screenshots (mss), and the windows as the window manager reports them (EWMH).

OSWorld's server dies after some 250 screenshots because it opens an X client per request; here one client serves all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mss import MSS
from mss.tools import to_png
from PIL import Image
from Xlib import X, error
from Xlib.display import Display
from Xlib.protocol import event

_BACKGROUND = 0x38566E
_FROM_A_PAGER = 2  # EWMH source: window managers obey a pager, but may only highlight the window for an application


class XConnection:
    """Lends the connection to one caller at a time; connects at first use, and again after the server was lost."""

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


class Screen:
    """Takes screenshots."""

    def __init__(self, connection: XConnection) -> None:
        self._connection = connection
        # One thread for all: a new thread takes twice as long, because its memory is not mapped yet.
        self._thread = ThreadPoolExecutor(1)
        self._camera: Any = None
        self._last: tuple[bytearray, bytes] | None = None

    def png(self) -> bytes:
        """Return the current screen, with the cursor, as a PNG.

        If the screen equals the last one, the last PNG is returned, because encoding takes ten times as long as the
        screenshot.

        Raises:
            mss.ScreenShotError: If the X server died; the next call connects again.
        """
        return self._thread.submit(self._png).result()

    def _png(self) -> bytes:
        try:
            if self._camera is None:
                self._camera = MSS(display=self._connection.name, with_cursor=True)
            shot = self._camera.grab(self._camera.monitors[0])
        except Exception:
            camera, self._camera = self._camera, None
            if camera is not None:
                camera.close()
            raise
        if self._last is None or self._last[0] != shot.raw:
            self._last = None  # its memory is reused for the next frame
            rgb = Image.frombytes("RGB", shot.size, bytes(shot.raw), "raw", "BGRX").tobytes()
            # No line filter, zlib's level 1: half of the time of Pillow's encoder for the same size.
            self._last = (shot.raw, to_png(rgb, shot.size, level=1))
        return self._last[1]

    def paint_background(self) -> None:
        """Give the empty desktop a color, because a black screen indicates a broken one."""
        with self._connection.use() as display:
            root = display.screen().root
            root.change_attributes(background_pixel=_BACKGROUND)
            root.clear_area(0, 0, 0, 0)
            display.sync()

    def pointer(self) -> tuple[int, int]:
        with self._connection.use() as display:
            where = display.screen().root.query_pointer()
            return where.root_x, where.root_y

    def size(self) -> tuple[int, int]:
        with self._connection.use() as display:
            screen = display.screen()
            return screen.width_in_pixels, screen.height_in_pixels


@dataclass(frozen=True, slots=True)
class XWindow:
    """A managed window. ``classes`` is instance and class, as in ``galculator.Galculator``."""

    id: int
    title: str
    classes: tuple[str, ...]

    def matches(self, name: str, *, strict: bool, by_class: bool) -> bool:
        """Return whether this window's title contains ``name``, ignoring case; or, if strict, equals it."""
        own = ".".join(self.classes) if by_class else self.title
        return own == name if strict else name.lower() in own.lower()


class Windows:
    """The window manager's windows."""

    def __init__(self, connection: XConnection) -> None:
        self._connection = connection

    def all(self) -> list[XWindow]:
        with self._connection.use() as display:
            numbers = _property(display, display.screen().root, "_NET_CLIENT_LIST")
            return [window for window in (_describe(display, number) for number in numbers or ()) if window is not None]

    def find(self, name: str, *, strict: bool = False, by_class: bool = False) -> XWindow | None:
        """Return the oldest window that matches ``name``, or None."""
        return next((window for window in self.all() if window.matches(name, strict=strict, by_class=by_class)), None)

    def activate(self, window: XWindow) -> None:
        """Raise a window and give it the focus."""
        self._tell(window, "_NET_ACTIVE_WINDOW", (_FROM_A_PAGER, X.CurrentTime, 0, 0, 0))

    def close(self, window: XWindow) -> None:
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
