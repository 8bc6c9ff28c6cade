"""Pixels: a scene drawn into an array, and redrawn only where it changed.

A returned frame is never modified: a change creates a copy, in which the boxes of all marks that appeared, vanished or
changed are redrawn. Invariant: a frame equals a full drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dartsim.envs.mock.colors import Color
from dartsim.envs.mock.font import text_mask
from dartsim.envs.mock.scene import DrawOp

Frame = NDArray[np.uint8]
Area = tuple[int, int, int, int]

MAX_AREAS = 8
"""More changed boxes than this are redrawn as one box around them."""
_LARGE = 4096
"""Pixels from which a fill copies its first row, which is several times as fast."""


@lru_cache(maxsize=1024)
def _pixel(color: Color) -> Frame:
    return np.array(color, dtype=np.uint8)


class Painter:
    """Keeps the last frame of one screen and draws the next from it."""

    __slots__ = ("_frame", "_marks", "height", "width")

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._frame: Frame | None = None
        self._marks: list[DrawOp] = []

    def paint(self, marks: list[DrawOp]) -> Frame:
        """Return a read-only frame uint8 [height, width, 3]; the same array as before if nothing changed."""
        if self._frame is None:
            frame = np.empty((self.height, self.width, 3), dtype=np.uint8)
            areas: list[Area] = [(0, 0, self.width, self.height)]
        else:
            areas = changed_areas(self._marks, marks)
            if not areas:
                return self._frame
            frame = self._frame.copy()
        for area in areas:
            draw(frame, marks, area)
        frame.setflags(write=False)
        self._frame, self._marks = frame, marks
        return frame


def changed_areas(before: list[DrawOp], after: list[DrawOp]) -> list[Area]:
    """Return boxes outside of which two scenes are equal."""
    if before == after:
        return []
    if len(before) == len(after):
        differing = [mark for pair in zip(before, after, strict=True) if pair[0] != pair[1] for mark in pair]
    else:
        start, end = _common_ends(before, after)
        middle = before[start : len(before) - end], after[start : len(after) - end]
        kept = set(middle[0]) & set(middle[1])
        # A mark in both may have changed its place in the order. That matters only if it overlaps one that appeared or
        # vanished, or if its order among the others changed; then redraw it too.
        differing = [*middle[0], *middle[1]]
        if [mark for mark in middle[0] if mark in kept] == [mark for mark in middle[1] if mark in kept]:
            differing = [mark for part in middle for mark in part if mark not in kept]
    boxes = {mark[:4] for mark in differing}
    areas = _outermost(boxes) if len(boxes) <= 3 * MAX_AREAS else list(boxes)
    return areas if len(areas) <= MAX_AREAS else [_around(areas)]


def _outermost(areas: set[Area]) -> list[Area]:
    """Return the areas that lie in no other, the largest first."""
    kept: list[Area] = []
    for area in sorted(areas, key=lambda each: ((each[0] - each[2]) * (each[3] - each[1]), each)):
        if not any(_lies_in(area, other) for other in kept):
            kept.append(area)
    return kept


def _lies_in(inner: Area, outer: Area) -> bool:
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def _common_ends(before: list[DrawOp], after: list[DrawOp]) -> tuple[int, int]:
    """Return how many marks are equal at the start, and how many of the rest at the end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


def _around(areas: Sequence[Area]) -> Area:
    return (
        min(area[0] for area in areas),
        min(area[1] for area in areas),
        max(area[2] for area in areas),
        max(area[3] for area in areas),
    )


def draw(frame: Frame, marks: Sequence[DrawOp], area: Area) -> None:
    """Draw all marks into the pixels of one box."""
    from_x, from_y, to_x, to_y = area
    for left, top, right, bottom, color, text, x, y, scale in marks[_lowest_seen(marks, area) :]:
        if left >= to_x or right <= from_x or top >= to_y or bottom <= from_y:
            continue
        left = left if left > from_x else from_x
        top = top if top > from_y else from_y
        right = right if right < to_x else to_x
        bottom = bottom if bottom < to_y else to_y
        region = frame[top:bottom, left:right]
        if text:
            mask = text_mask(text, scale)[top - y : bottom - y, left - x : right - x]
            region[mask] = _pixel(color)
        elif (right - left) * (bottom - top) < _LARGE:
            region[:] = _pixel(color)
        else:
            region[0] = _pixel(color)
            region[1:] = region[0]


def _lowest_seen(marks: Sequence[DrawOp], area: Area) -> int:
    """Return the index of the uppermost rectangle that covers a box and hides what is below it."""
    from_x, from_y, to_x, to_y = area
    for index in range(len(marks) - 1, -1, -1):
        mark = marks[index]
        if mark[0] <= from_x and mark[2] >= to_x and mark[1] <= from_y and mark[3] >= to_y and not mark[5]:
            return index
    return 0
