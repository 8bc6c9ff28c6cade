"""PNG files of screenshots, without a library: 8 bits, three colours, every row less the one above it.

Any viewer opens them. Reading knows what ``encode`` writes and nothing else. Source: W3C, Portable Network Graphics.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LEVEL = 3
"""Of zlib: higher ones take much longer for a few percent."""
_UP = 2
_MOST_PIXELS = 2**28


def encode(picture: Any) -> bytes:
    """Return a uint8 array [height, width, 3] as a PNG file."""
    pixels = np.ascontiguousarray(picture)
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, width * 3)
    filtered = np.empty((height, 1 + width * 3), dtype=np.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(filtered.data, LEVEL)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def decode(data: bytes) -> NDArray[np.uint8]:
    """Return the array of a file that ``encode`` made.

    Raises:
        ValueError: If it is none, or not whole.
    """
    if not data.startswith(SIGNATURE):
        raise ValueError("no PNG file")
    kinds, bodies = zip(*_chunks(data), strict=True)
    if kinds != (b"IHDR", b"IDAT", b"IEND"):
        raise ValueError("a PNG file of another maker")
    width, height, *rest = struct.unpack(">IIBBBBB", bodies[0])
    if rest != [8, 2, 0, 0, 0] or not 0 < width * height <= _MOST_PIXELS:
        raise ValueError("a PNG file of another kind")
    size = height * (1 + width * 3)
    unpack = zlib.decompressobj()
    try:
        raw = unpack.decompress(bodies[1], size)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(raw) != size:
        raise ValueError(f"{len(raw)} bytes of pixels, wanted {size}")
    filtered = np.frombuffer(raw, dtype=np.uint8).reshape(height, 1 + width * 3)
    if (filtered[:, 0] != _UP).any():
        raise ValueError("a PNG file with other filters")
    rows = np.add.accumulate(filtered[:, 1:], axis=0, dtype=np.uint8)
    return rows.reshape(height, width, 3)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], len(SIGNATURE)
    while at < len(data):
        if len(data) < at + 12:
            raise ValueError("the file ends in the middle")
        length = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        check = data[at + 8 + length : at + 12 + length]
        if len(check) < 4 or zlib.crc32(kind + body) != int.from_bytes(check, "big"):
            raise ValueError("the file ends in the middle, or was changed")
        found.append((kind, body))
        at += 12 + length
    if not found:
        raise ValueError("the file ends in the middle")
    return found
