"""Screenshots as PNG files: checked and then read by Pillow, written by numpy and zlib twice as fast as by Pillow.

Of 64 screenshots taken 8 at a time from OSWorld's server, 12 had the right signature and did not decode. Pillow does
not verify checksums of pixels, so every chunk is verified here before Pillow decodes.
"""

from __future__ import annotations

import io
import struct
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.core.errors import StoreFault

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 2**26
"""A larger picture is refused before it is decoded: 8 times a 4K screen."""
LEVEL = 3
"""zlib's compression level: higher ones take much longer and save a few percent."""
_UP = 2
"""PNG's filter that subtracts the row above from each row."""


class Screenshot:
    """A screenshot kept as a PNG file, a tenth of the memory of its pixels; ``np.asarray`` decodes it.

    A run's attempts would take gigabytes, so a store may move the file to its disk.

    Attributes:
        shape: Height, width, 3.
    """

    __slots__ = ("__weakref__", "_digest", "_file", "shape")
    dtype = np.dtype(np.uint8)

    def __init__(self, png: bytes, shape: tuple[int, ...] | None = None) -> None:
        self._file: bytes | Path = png
        if shape is None:
            width, height = check_png(png)
            shape = height, width, 3
        self.shape = shape
        self._digest: bytes | None = None

    @property
    def png(self) -> bytes:
        """The file, which is not checked here.

        Raises:
            StoreFault: If it was moved to a disk and cannot be read.
        """
        file = self._file  # another thread may move it
        if isinstance(file, bytes):
            return file
        try:
            return file.read_bytes()
        except OSError as error:
            raise StoreFault(f"{file} could not be read: {error.strerror}") from error

    def move_to(self, path: Path) -> bool:
        """Keep the file on disk from now on, where it is already; return whether it was in memory until now."""
        moved = isinstance(self._file, bytes)
        if moved:
            _ = self.digest
            self._file = path
        return moved

    @property
    def digest(self) -> bytes:
        """SHA-256 of the file, computed once."""
        if self._digest is None:
            self._digest = sha256(self.png).digest()
        return self._digest

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The pixels, decoded at every call: read-only uint8 [height, width, 3].

        Raises:
            ValueError: If the file is damaged.
        """
        return decode_png(self.png)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.pixels, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        return Screenshot, (self.png, self.shape)


def encode_png(pixels: Any) -> bytes:
    """Return uint8 [height, width, 3] as a PNG file."""
    pixels = np.ascontiguousarray(pixels)
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, width * 3)
    filtered = np.empty((height, 1 + width * 3), dtype=np.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(filtered.data, LEVEL)
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def key_of(screenshot: Any) -> bytes:
    """Return a 32-byte key that is equal for equal screenshots; a file and an array have different keys."""
    if isinstance(screenshot, Screenshot):
        return screenshot.digest
    digest = sha256(repr(screenshot.shape).encode())
    digest.update(np.ascontiguousarray(screenshot).data)
    return digest.digest()


def png_of(screenshot: Any) -> bytes:
    """Return a screenshot as a PNG file, encoding it if it is an array."""
    return screenshot.png if isinstance(screenshot, Screenshot) else encode_png(screenshot)


def check_png(data: bytes) -> tuple[int, int]:
    """Check every chunk of a PNG file, and return its width and height.

    Raises:
        ValueError: If a chunk is invalid.
    """
    if not data.startswith(SIGNATURE):
        raise ValueError(f"found {data[:8]!r} at the beginning, wanted PNG's signature")
    kind, content, at = _read_chunk(data, len(SIGNATURE))
    if kind != b"IHDR" or len(content) != 13:
        raise ValueError(f"found {kind!r} as the first chunk, wanted a header")
    width, height = struct.unpack(">II", content[:8])
    while kind != b"IEND":
        kind, content, at = _read_chunk(data, at)
    if at != len(data):
        raise ValueError(f"found {len(data) - at} bytes after its end")
    if not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"found {width} × {height} pixels, wanted 1 to {MAX_PIXELS} in all")
    return width, height


def decode_png(data: bytes) -> NDArray[np.uint8]:
    """Return the pixels of a PNG file, read-only uint8 [height, width, 3].

    Raises:
        ValueError: If the data is not a complete PNG.
    """
    # Imported here: writing screenshots does not need it.
    from PIL import Image

    width, height = check_png(data)
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            # Most pictures are RGB already; converting would copy, at twice the cost of decoding.
            pixels = np.asarray(image if image.mode == "RGB" else image.convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, zlib.error) as error:
        raise ValueError(f"it does not decode ({error})") from None
    if pixels.shape != (height, width, 3):
        raise ValueError(f"found {pixels.shape} when decoded, its header says {height} × {width}")
    pixels.setflags(write=False)
    return pixels


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _read_chunk(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return kind and content of the chunk at an offset, and where the next one begins."""
    if at + 12 > len(data):
        raise ValueError(f"it ends after {len(data)} bytes, in the middle of a chunk or before its end chunk")
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 12 + length
    if end > len(data):
        raise ValueError(f"it ends after {len(data)} bytes, a chunk wants {end}")
    kind, content = data[at + 4 : at + 8], data[at + 8 : end - 4]
    if zlib.crc32(content, zlib.crc32(kind)) != struct.unpack_from(">I", data, end - 4)[0]:
        raise ValueError(f"the chunk {kind!r} has a wrong check sum")
    return kind, content, end
