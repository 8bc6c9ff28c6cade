# mypy: disable-error-code="import-not-found"
"""The screen as PNG with the cursor on it (mss, through memory shared with the X server)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mss import MSS
from mss.tools import to_png
from PIL import Image

from dartsim.real.desktop.server.x11 import XConnection

_BACKGROUND = 0x38566E


class Screen:
    """Takes screenshots."""

    def __init__(self, connection: XConnection) -> None:
        self._connection = connection
        # One thread for all: a new one would take twice as long, having no used memory at hand.
        self._thread = ThreadPoolExecutor(1)
        self._camera: Any = None
        self._last: tuple[bytearray, bytes] | None = None

    def png(self) -> bytes:
        """Return what the screen shows now, with the cursor, as a PNG.

        A frame equal to the last one is answered with the last PNG: encoding takes ten times as long as looking.

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
            self._last = None  # its memory is the next frame's
            rgb = Image.frombytes("RGB", shot.size, bytes(shot.raw), "raw", "BGRX").tobytes()
            # No line filter, zlib's level 1: half of the time of Pillow's encoder for the same size.
            self._last = (shot.raw, to_png(rgb, shot.size, level=1))
        return self._last[1]

    def paint_background(self) -> None:
        """Give the empty desktop a color: a black screen is what a broken one shows."""
        with self._connection.use() as display:
            root = display.screen().root
            root.change_attributes(background_pixel=_BACKGROUND)
            root.clear_area(0, 0, 0, 0)
            display.sync()

    def pointer(self) -> tuple[int, int]:
        """Return where the pointer is, pixels from the top left."""
        with self._connection.use() as display:
            where = display.screen().root.query_pointer()
            return where.root_x, where.root_y

    def size(self) -> tuple[int, int]:
        """Return width and height of the screen, pixels."""
        with self._connection.use() as display:
            screen = display.screen()
            return screen.width_in_pixels, screen.height_in_pixels
