"""Screenshots: whether their bytes are one complete PNG, whether two are equal, whether one shows anything.

OSWorld's server mixes and truncates PNGs when requests overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.core.png import Screenshot, decode_png
from dartsim.real.osworld.errors import BadScreenshot

LIT = 24
"""A pixel shows something if one of its colors is brighter than this, out of 255."""
POINTER_SIDE = 32
"""Side of a square that contains a pointer, pixels; a pointer is drawn even on a screen that shows nothing."""
SPARSE_ROWS = 16
"""Of so many rows one is looked at first: an eighth of a millisecond in place of one."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Frame:
    """One screenshot: as the server sent it, and as read-only uint8 [height, width, 3]."""

    screenshot: Screenshot
    pixels: NDArray[np.uint8]

    @property
    def png(self) -> bytes:
        return self.screenshot.png

    @property
    def size(self) -> tuple[int, int]:
        height, width, _ = self.pixels.shape
        return width, height


def read_frame(data: bytes) -> Frame:
    """Check and decode a PNG file, and compute its digest: ten milliseconds at 1080p, so call it in a thread.

    Raises:
        BadScreenshot: If the data is no whole PNG.
    """
    try:
        pixels = decode_png(data)
    except ValueError as error:
        what = f"a screenshot of {len(data)} bytes is no whole PNG: {error}"
        raise BadScreenshot(what, body=repr(data[:60])) from None
    screenshot = Screenshot(data, pixels.shape)
    _ = screenshot.digest
    return Frame(screenshot, pixels)


def same(one: Frame, other: Frame, *, still_pixels: int = 0) -> bool:
    """Whether at most ``still_pixels`` differ: a clock or a blinking caret may change on a still screen."""
    if one.png == other.png:
        return True
    if one.pixels.shape != other.pixels.shape:
        return False
    changed = one.pixels != other.pixels
    # Three flags a changed pixel at most, so few flags are few pixels; counting pixels costs four times as much.
    flags = int(np.count_nonzero(changed))
    if flags <= still_pixels or flags > 3 * still_pixels:
        return flags <= still_pixels
    return int(np.count_nonzero(changed.any(axis=2))) <= still_pixels


def is_black(frame: Frame, *, lit_share: float) -> bool:
    """Whether less than this share of the pixels shows anything, or only a pointer is visible.

    On a small screen, a pointer alone exceeds the share that is required on a large one.
    """
    if not lit_share:
        return False
    num_pixels = frame.pixels.size // 3
    # A pixel has three colors, so this many flags are enough pixels, wherever they are. Some rows are mostly enough.
    enough = 3 * max(lit_share * num_pixels, POINTER_SIDE**2 + 1)
    if int(np.count_nonzero(frame.pixels[::SPARSE_ROWS] > LIT)) >= enough:
        return False
    bright = frame.pixels > LIT
    if int(np.count_nonzero(bright)) >= enough:
        return False
    rows, columns = np.nonzero(bright.any(axis=2))
    if rows.size < lit_share * num_pixels:
        return True
    height, width, _ = bright.shape
    return _fits(rows, height) and _fits(columns, width)


def _fits(places: NDArray[np.intp], size: int) -> bool:
    """Return whether lit places along one side of a screen of that size may be those of a pointer."""
    return int(places.max() - places.min()) < min(POINTER_SIDE, size // 2)


def resized(pixels: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a picture of another (width, height), averaged where it shrinks.

    Averaging every pixel keeps thin lines and small text visible, as grey; taking single pixels would lose them.
    """
    from PIL import Image

    if (pixels.shape[1], pixels.shape[0]) == size:
        return np.asarray(pixels, dtype=np.uint8)
    shrinks = size[0] <= pixels.shape[1] and size[1] <= pixels.shape[0]
    how = Image.Resampling.BOX if shrinks else Image.Resampling.LANCZOS
    small = np.array(Image.fromarray(pixels).resize(size, how), dtype=np.uint8)
    small.setflags(write=False)
    return small
