"""Texts and signs as masks of pixels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dartsim.envs.mock.glyphs import ADVANCE, CURSOR, GLYPHS, HEIGHT, UNKNOWN, WIDTH

Mask = NDArray[np.bool_]

POINTER_DARK = "\x01"
POINTER_LIGHT = "\x02"
"""Texts that stand for the two parts of the pointer."""


def _bitmap(rows: list[str], marks: str = "#") -> Mask:
    return np.array([[char in marks for char in row] for row in rows], dtype=np.bool_)


_POINTER = CURSOR.strip("\n").split("\n")
POINTER_WIDTH = len(_POINTER[0])
POINTER_HEIGHT = len(_POINTER)
_SIGNS = {POINTER_DARK: _bitmap(_POINTER), POINTER_LIGHT: _bitmap(_POINTER, "o")}
_BITMAPS = {char: _bitmap(rows) for char, rows in GLYPHS.items()}
_UNKNOWN = _bitmap(UNKNOWN)


@lru_cache(maxsize=4096)
def text_mask(text: str, scale: int) -> Mask:
    """Return the pixels of a line of text; 6 × 8 font pixels a character, each ``scale`` × ``scale``."""
    small = _SIGNS.get(text)
    if small is None:
        small = np.zeros((HEIGHT, ADVANCE * len(text)), dtype=np.bool_)
        for i, char in enumerate(text):
            small[:, ADVANCE * i : ADVANCE * i + WIDTH] = _BITMAPS.get(char, _UNKNOWN)
    mask = small if scale == 1 else small.repeat(scale, axis=0).repeat(scale, axis=1)
    mask.setflags(write=False)
    return mask
