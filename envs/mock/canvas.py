"""The canvas that draws: it collects marks, rectangles and texts, each clipped to a box."""

from __future__ import annotations

from typing import NamedTuple

from dartsim.envs.mock.colors import Color
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.layout import ScreenLayout


class DrawOp(NamedTuple):
    """A rectangle, or a text in the part of it that shows; ``x`` and ``y`` are where the text begins."""

    left: int
    top: int
    right: int
    bottom: int
    color: Color
    text: str = ""
    x: int = 0
    y: int = 0
    scale: int = 1


class Canvas:
    """Collects marks, clipped to a box."""

    __slots__ = ("clip", "layout", "marks")

    def __init__(self, layout: ScreenLayout) -> None:
        self.layout = layout
        self.marks: list[DrawOp] = []
        self.clip = layout.screen

    def fill(self, box: Box, color: Color) -> None:
        """Fill a box."""
        left, top, right, bottom = box
        clip_left, clip_top, clip_right, clip_bottom = self.clip
        # Not min and max: this runs a hundred times a frame.
        left = left if left > clip_left else clip_left
        top = top if top > clip_top else clip_top
        right = right if right < clip_right else clip_right
        bottom = bottom if bottom < clip_bottom else clip_bottom
        if left < right and top < bottom:
            self.marks.append(DrawOp(left, top, right, bottom, color))

    def frame(self, box: Box, edge: Color, face: Color, thick: int = 1) -> None:
        """Fill a box with an edge."""
        self.fill(box, edge)
        self.fill(box.shrunk(thick), face)

    def write(self, text: str, box: Box, color: Color, *, centered: bool = False) -> None:
        """Write a line of text in a box, in the middle of its height; what does not fit is cut off."""
        if not text:
            return
        layout = self.layout
        scale = layout.scale
        wide, high = layout.advance * len(text) - scale, 8 * scale
        x = box[0] + layout.gap
        if centered:
            x = box[0] + max(scale, (box[2] - box[0] - wide) // 2)
        y = box[1] + max(0, (box[3] - box[1] - high + scale) // 2)
        clip = self.clip
        left, top = max(x, box[0], clip[0]), max(y, box[1], clip[1])
        right, bottom = min(x + wide, box[2], clip[2]), min(y + high, box[3], clip[3])
        if left < right and top < bottom:
            self.marks.append(DrawOp(left, top, right, bottom, color, text, x, y, scale))

    def sign(self, sign: str, x: int, y: int, width: int, height: int, color: Color) -> None:
        """Draw a sign of the font with its upper left corner at a pixel."""
        scale, clip = self.layout.scale, self.clip
        right, bottom = min(x + width * scale, clip[2]), min(y + height * scale, clip[3])
        if x < right and y < bottom:
            self.marks.append(DrawOp(x, y, right, bottom, color, sign, x, y, scale))
