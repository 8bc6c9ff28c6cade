"""Positions of windows and widgets, computed from the screen's size and the specs."""

from __future__ import annotations

from dartsim.envs.mock.geometry import Box, text_scale, unit_of
from dartsim.envs.mock.widgets import MockWindow, PlacedWidget


class ScreenLayout:
    """The measures of one screen size."""

    __slots__ = ("advance", "gap", "height", "scale", "screen", "unit", "width")

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.unit = unit_of(width, height)
        self.scale = text_scale(self.unit)
        self.advance = 6 * self.scale
        self.gap = max(1, self.unit // 6)
        self.screen = Box(0, 0, width, height)

    def place_window(self, window: MockWindow) -> None:
        if window.bare:
            window.box = self.screen
        else:
            left, top, width, height = window.place
            across = min(self.width, max(round(width * self.width), min(self.width, 7 * self.unit)))
            down = min(self.height, max(round(height * self.height), min(self.height, 5 * self.unit // 2)))
            x = min(max(0, round(left * self.width)), self.width - across)
            y = min(max(0, round(top * self.height)), self.height - down)
            window.box = Box(x, y, x + across, y + down)
        self.place_page(window)

    def title(self, window: MockWindow) -> Box:
        """Return the title bar; empty in a bare window."""
        box = window.box
        return Box(box.left, box.top, box.right, box.top + (0 if window.bare else self.unit))

    def close(self, window: MockWindow) -> Box:
        """Return the close box; empty in a bare window."""
        bar = self.title(window)
        return Box(bar.right - bar.height, bar.top, bar.right, bar.bottom)

    def viewport(self, window: MockWindow) -> Box:
        """Return the area of the content."""
        if window.bare:
            return window.box
        edge, box = 1, window.box
        return Box(box.left + edge, self.title(window).bottom, box.right - edge, box.bottom - edge).meet(self.screen)

    def place_page(self, window: MockWindow) -> None:
        """Lay out the visible page: its rows share the height, and the widgets of a row its width."""
        view = self.viewport(window)
        page = window.pages[window.page] if window.pages else []
        window.placed = []
        for r, row in enumerate(page):
            top = view.top + view.height * r // len(page)
            bottom = view.top + view.height * (r + 1) // len(page)
            for c, widget in enumerate(row):
                left = view.left + view.width * c // len(row)
                right = view.left + view.width * (c + 1) // len(row)
                cell = Box(left, top, right, bottom)
                window.placed.append(PlacedWidget(widget, _inset(cell, widget.inset) if any(widget.inset) else cell))


def _inset(cell: Box, inset: tuple[float, float, float, float]) -> Box:
    left, top, right, bottom = inset
    return Box(
        cell.left + round(left * cell.width),
        cell.top + round(top * cell.height),
        cell.right - round(right * cell.width),
        cell.bottom - round(bottom * cell.height),
    )
