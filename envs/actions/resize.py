"""How Qwen's picture processors resize a screenshot, which fixes the pixels that a model speaks of."""

from __future__ import annotations

import math

FACTOR = 28
"""Sides of a resized picture are multiples of that: 14 pixels a patch, 2 × 2 patches a token."""
MIN_PIXELS = 100 * 28 * 28
MAX_PIXELS = 16384 * 28 * 28
"""Bounds of UI-TARS-1.5."""
MAX_ASPECT = 200


def smart_resize(
    width: int,
    height: int,
    *,
    factor: int = FACTOR,
    min_pixels: int = MIN_PIXELS,
    max_pixels: int = MAX_PIXELS,
) -> tuple[int, int]:
    """Return (width, height) of the resized picture: 1920 × 1080 becomes 1932 × 1092.

    Sides are rounded to multiples of ``factor``; if the area is then out of bounds, both sides are scaled by
    the same ratio and rounded inwards.

    Raises:
        ValueError: If one side is more than 200 times the other.
    """
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ValueError(f"wanted an aspect ratio of at most {MAX_ASPECT}, found {width} × {height}")
    across = max(factor, round(width / factor) * factor)
    down = max(factor, round(height / factor) * factor)
    if across * down > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        across = max(factor, math.floor(width / shrink / factor) * factor)
        down = max(factor, math.floor(height / shrink / factor) * factor)
    elif across * down < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        across = math.ceil(width * grow / factor) * factor
        down = math.ceil(height * grow / factor) * factor
    return across, down
