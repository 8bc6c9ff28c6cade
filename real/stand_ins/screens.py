"""Distinct screenshots of a desktop's size and weight, each made in milliseconds."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from dartsim.core.png import SIGNATURE, chunk

BAND_ROWS = 40
"""Rows that are compressed together, and that one screenshot has different from all others."""
NOISY_SHARE = 0.1
"""Share of the pixels that hardly compress, as those of a photograph: a 1920 x 1080 PNG then has about 400 KB."""


class Screens:
    """Screenshots by number: equal but for one band of rows, which depends on the number.

    Only that band is compressed for each screenshot. Every band is a deflate stream that refers to no other (zlib's
    full flush), so that any of them may be replaced.
    """

    def __init__(self, width: int = 1920, height: int = 1080, *, seed: int = 0) -> None:
        self.width, self.height = width, height
        rng = np.random.default_rng(seed)
        picture = np.broadcast_to(np.linspace(60, 200, width, dtype=np.uint8)[None, :, None], (height, width, 3)).copy()
        noisy = picture[: round(height * NOISY_SHARE)]
        noisy += rng.integers(0, 8, noisy.shape, dtype=np.uint8)
        self._rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # filter 0 before each row
        self._rows[:, 1:] = picture.reshape(height, 3 * width)
        self._tops = range(0, height, BAND_ROWS)
        self._bands = [_deflated(self._rows[top : top + BAND_ROWS].tobytes()) for top in self._tops]

    def png(self, number: int) -> bytes:
        """Return a screenshot; equal numbers below 2**24 give equal ones, different numbers different ones."""
        band = number % len(self._bands)
        top = self._tops[band]
        rows = self._rows.copy()
        color = np.frombuffer(number.to_bytes(3, "little"), dtype=np.uint8)
        rows[top : top + BAND_ROWS, 1:] = np.tile(color, self.width)
        changed = _deflated(rows[top : top + BAND_ROWS].tobytes())
        bands = [*self._bands[:band], changed, *self._bands[band + 1 :]]
        end = b"\x03\x00" + struct.pack(">I", zlib.adler32(rows.data))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        return b"".join(
            (
                SIGNATURE,
                chunk(b"IHDR", header),
                chunk(b"IDAT", b"".join((b"\x78\x01", *bands, end))),
                chunk(b"IEND", b""),
            )
        )


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
