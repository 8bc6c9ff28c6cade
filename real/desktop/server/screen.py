"""The screen as PNG: Xvfb's framebuffer, mapped into memory, with the cursor drawn over it.

Xvfb keeps its pixels in a file (``-fbdir``) in XWD's format, and reading it costs one copy of the frame instead of a
transfer through a socket. The X server is held meanwhile (``GrabServer``), so that a frame is never half painted, and
so that a server that died or hangs is noticed. A frame equal to the last one is answered with the last PNG.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from PIL import Image

from dartsim.real.desktop.server.display import XConnection
from dartsim.real.desktop.server.frame import XWD_HEADER_BYTES, Layout, encode_png, read_layout

_BACKGROUND = 0x38566E


class Screen:
    """Takes screenshots.

    Args:
        connection: The X server's connection, used for the cursor and to hold the server.
        framebuffer: The file that Xvfb keeps its screen in.
    """

    def __init__(self, connection: XConnection, framebuffer: Path) -> None:
        self._connection = connection
        self._framebuffer = framebuffer
        self._memory: mmap.mmap | None = None
        self._inode = 0
        self._layout = Layout(0, 0, 0, 0)
        self._cursor: tuple[int, Image.Image] | None = None
        self._last: tuple[bytes, tuple[int, int, int], bytes] | None = None

    def png(self) -> bytes:
        """Return what the screen shows now, with the cursor, as a PNG."""
        with self._connection.use() as display:
            frame, shape = self._grab(display)
            serial, x, y, cursor = shape
            if self._last is not None and self._last[1] == (serial, x, y) and self._last[0] == frame:
                return self._last[2]
            layout = self._layout
            size = (layout.width, layout.height)
            image = Image.frombuffer("RGB", size, frame, "raw", "BGRX", layout.bytes_per_line, 1)
            image = image.copy()  # the buffer is the frame to compare with
            image.paste(cursor, (x, y), cursor)
            png = encode_png(image)
            self._last = (frame, (serial, x, y), png)
            return png

    def paint_background(self) -> None:
        """Give the empty desktop a colour: a black screen is what a broken one shows."""
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

    def _grab(self, display: Any) -> tuple[bytes, tuple[int, int, int, Image.Image]]:
        """Copy the frame and ask for the cursor while nobody paints."""
        memory = self._mapped()
        display.grab_server()
        try:
            reply = display.xfixes_get_cursor_image(display.screen().root)
            start = self._layout.offset
            frame = memory[start : start + self._layout.num_bytes]
        finally:
            display.ungrab_server()
            display.flush()
        return frame, (reply.cursor_serial, reply.x - reply.xhot, reply.y - reply.yhot, self._picture(reply))

    def _mapped(self) -> mmap.mmap:
        """Map the framebuffer; anew if an X server that was started again has made another one."""
        inode = self._framebuffer.stat().st_ino
        if self._memory is None or self._inode != inode:
            with self._framebuffer.open("rb") as file:
                self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._inode = inode
            self._layout = read_layout(self._memory[:XWD_HEADER_BYTES])
        return self._memory

    def _picture(self, reply: Any) -> Image.Image:
        """Return the cursor's picture; drawn anew only when its shape changes."""
        if self._cursor is None or self._cursor[0] != reply.cursor_serial:
            pixels = b"".join(_straight(pixel) for pixel in reply.cursor_image)
            self._cursor = (reply.cursor_serial, Image.frombytes("RGBA", (reply.width, reply.height), pixels))
        return self._cursor[1]


def _straight(pixel: int) -> bytes:
    """Turn a pixel of the cursor (ARGB, colours already multiplied by alpha) into RGBA with full colours."""
    alpha, red, green, blue = (pixel >> shift & 255 for shift in (24, 16, 8, 0))
    if not alpha:
        return bytes(4)
    return bytes((*(min(255, colour * 255 // alpha) for colour in (red, green, blue)), alpha))
