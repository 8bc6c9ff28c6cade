"""Boxes, and the unit of length of everything on the screen."""

from __future__ import annotations

from typing import NamedTuple

MIN_SIDE = 96
MAX_WIDTH = 1920
MAX_HEIGHT = 1080


class Box(NamedTuple):
    """A rectangle of pixels, without its right and lower edge."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return max(0, self.right - self.left)

    @property
    def height(self) -> int:
        return max(0, self.bottom - self.top)

    @property
    def empty(self) -> bool:
        return self.right <= self.left or self.bottom <= self.top

    @property
    def center(self) -> tuple[int, int]:
        """The pixel in the middle."""
        return (self.left + self.right) // 2, (self.top + self.bottom) // 2

    def holds(self, x: int, y: int) -> bool:
        return self.left <= x < self.right and self.top <= y < self.bottom

    def meet(self, other: Box) -> Box:
        left, top, right, bottom = self
        other_left, other_top, other_right, other_bottom = other
        return Box(
            left if left > other_left else other_left,
            top if top > other_top else other_top,
            right if right < other_right else other_right,
            bottom if bottom < other_bottom else other_bottom,
        )

    def moved(self, dx: int, dy: int) -> Box:
        return Box(self.left + dx, self.top + dy, self.right + dx, self.bottom + dy)

    def shrunk(self, margin: int) -> Box:
        return Box(self.left + margin, self.top + margin, self.right - margin, self.bottom - margin)


NOWHERE = Box(0, 0, 0, 0)
"""No pixel."""


def unit_of(width: int, height: int) -> int:
    """Return the height of a row of widgets for a screen, pixels.

    1/24 of a full-size screen, and never below 13, so that text of 8 pixels fits; a screen of 112 × 112 has
    about 8 rows.
    """
    return max(13, min(width * 9 // 16, height) // 24)


def text_scale(unit: int) -> int:
    """Return how many screen pixels a font pixel has, on each side."""
    return max(1, unit // 11)
