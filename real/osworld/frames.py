"""Screenshots: whether their bytes are one whole PNG, whether two are the same, whether one shows anything.

OSWorld's server overlaps and cuts PNGs when requests meet. A magic number says little: of 64 screenshots taken 8 at a
time, 12 had it and did not decode.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dartsim.real.osworld.errors import BadScreenshot

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 64 * 1024 * 1024
"""A larger picture is refused before it is decoded: 8 times a 4K screen."""


def check_png(data: bytes) -> tuple[int, int]:
    """Return the width and height of a PNG whose every chunk is whole, up to its end.

    Raises:
        BadScreenshot: If it is not; the message says where it stops making sense.
    """
    if not data.startswith(SIGNATURE):
        raise _bad(data, f"found {data[:8]!r} at the beginning, wanted PNG's signature")
    size: tuple[int, int] | None = None
    at = len(SIGNATURE)
    while True:
        kind, content, at = _chunk(data, at)
        if size is None:
            if kind != b"IHDR" or len(content) != 13:
                raise _bad(data, f"found {kind!r} as the first chunk, wanted a header")
            size = struct.unpack(">II", content[:8])
        if kind == b"IEND":
            break
    if at != len(data):
        raise _bad(data, f"found {len(data) - at} bytes after its end")
    if not (size[0] and size[1] and size[0] * size[1] <= MAX_PIXELS):
        raise _bad(data, f"found {size[0]} × {size[1]} pixels, wanted 1 to {MAX_PIXELS} in all")
    return size


def decode_png(data: bytes) -> NDArray[np.uint8]:
    """Return the pixels, read-only uint8 [height, width, 3].

    Raises:
        BadScreenshot: If the data is no whole PNG.
    """
    from PIL import Image

    width, height = check_png(data)
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            # Converting copies, which costs twice what decoding does; servers send RGB.
            pixels = np.asarray(image if image.mode == "RGB" else image.convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, zlib.error) as exc:
        raise _bad(data, f"it does not decode ({exc})") from None
    if pixels.shape != (height, width, 3):
        raise _bad(data, f"found {pixels.shape} when decoded, its header says {height} × {width}")
    pixels.setflags(write=False)
    return pixels


def encode_png(pixels: Any) -> bytes:
    """Return uint8 [height, width, 3] as a PNG, quickly rather than small."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(out, format="PNG", compress_level=1)
    return out.getvalue()


def _chunk(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return kind and content of the chunk at an offset, and where the next one begins."""
    if at + 12 > len(data):
        raise _bad(data, f"it ends after {len(data)} bytes, in the middle of a chunk or before its end chunk")
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 12 + length
    if end > len(data):
        raise _bad(data, f"it ends after {len(data)} bytes, a chunk wants {end}")
    kind, content = data[at + 4 : at + 8], data[at + 8 : end - 4]
    if zlib.crc32(content, zlib.crc32(kind)) != struct.unpack_from(">I", data, end - 4)[0]:
        raise _bad(data, f"the chunk {kind!r} has a wrong check sum")
    return kind, content, end


def _bad(data: bytes, what: str) -> BadScreenshot:
    return BadScreenshot(f"a screenshot of {len(data)} bytes is no whole PNG: {what}", body=repr(data[:60]))


LIT = 24
"""A pixel shows something if one of its colours is brighter than that, of 255."""
POINTER_SIDE = 32
"""A pointer fits into a square of so many pixels a side; it is drawn on a screen that shows nothing, too."""


class Frame(NamedTuple):
    """One screenshot: as the server sent it, and as read-only uint8 [height, width, 3]."""

    png: bytes
    pixels: NDArray[np.uint8]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, pixels."""
        height, width, _ = self.pixels.shape
        return width, height


def same(one: Frame, other: Frame, *, still_pixels: int = 0) -> bool:
    """Whether at most so many pixels differ: a clock or a blinking caret moves on a screen that is still."""
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
    """Whether less than this share of the pixels shows anything, or nothing does but a pointer.

    On a small screen, a pointer alone is more than the share that a large one has to show.
    """
    if not lit_share:
        return False
    bright = frame.pixels > LIT
    num_pixels = bright.size // 3
    # A pixel has three colours, so that this many flags are enough pixels, however they lie.
    if int(np.count_nonzero(bright)) >= 3 * max(lit_share * num_pixels, POINTER_SIDE**2 + 1):
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
