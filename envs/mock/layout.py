"""Positions of windows and widgets, computed from the screen's size and the specs."""

from __future__ import annotations

from dartsim.envs.mock.geometry import Box, text_scale, unit_of
from dartsim.envs.mock.widgets import MockWindow, Placed, Row

LABEL_SHARE = 0.4
"""Of a cell's width that a label to the left takes."""


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

    def menu_bar(self, window: MockWindow) -> Box:
        """Return the menu bar; empty without menus."""
        top = self.title(window).bottom
        return Box(window.box.left, top, window.box.right, top + (self.unit if window.menus else 0))

    def menu_titles(self, window: MockWindow) -> list[Box]:
        bar = self.menu_bar(window)
        boxes, left = [], bar.left
        share = bar.width // max(1, len(window.menus))
        for menu in window.menus:
            wide = min(max(len(menu.title) * self.advance + 2 * self.gap, self.unit), share)
            boxes.append(Box(left, bar.top, left + wide, bar.bottom))
            left += wide
        return boxes

    def menu_items(self, window: MockWindow, index: int) -> list[Box]:
        """Return the boxes of an open menu's items, moved up or left to fit the screen."""
        title = self.menu_titles(window)[index]
        items = window.menus[index].items
        longest = max((len(item) for item in items), default=1)
        wide = min(self.width, max(longest * self.advance + 2 * self.gap, title.width))
        left = max(0, min(title.left, self.width - wide))
        top = max(0, min(title.bottom, self.height - self.unit * len(items)))
        return [Box(left, top + i * self.unit, left + wide, top + (i + 1) * self.unit) for i in range(len(items))]

    def viewport(self, window: MockWindow) -> Box:
        """Return where the content shows."""
        if window.bare:
            return window.box
        edge = 1
        box = window.box
        return Box(box.left + edge, self.menu_bar(window).bottom, box.right - edge, box.bottom - edge).meet(self.screen)

    def place_page(self, window: MockWindow) -> None:
        """Lay out the visible page, as if not scrolled."""
        view = self.viewport(window)
        page = window.pages[window.page] if window.pages else []
        if window.fill:
            window.placed = self._filled(view, page)
            window.content_height = view.height
        else:
            window.placed, window.content_height = self._stacked(view, page)
        self.keep_scroll(window)

    def keep_scroll(self, window: MockWindow) -> None:
        """Limit the scroll position to the content."""
        window.scroll = min(max(window.scroll, 0), self.max_scroll(window))

    def max_scroll(self, window: MockWindow) -> int:
        return max(0, window.content_height - self.viewport(window).height)

    def _filled(self, view: Box, page: list[Row]) -> list[Placed]:
        placed = []
        for r, row in enumerate(page):
            top = view.top + view.height * r // len(page)
            bottom = view.top + view.height * (r + 1) // len(page)
            placed += self._row(row, Box(view.left, top, view.right, bottom), 0)
        return placed

    def _stacked(self, view: Box, page: list[Row]) -> tuple[list[Placed], int]:
        placed: list[Placed] = []
        top = view.top + self.gap
        for row in page:
            rows = max((widget.height_rows for widget in row), default=1.0)
            bottom = top + round(rows * self.unit)
            cell = Box(view.left + self.gap, top, view.right - self.gap, bottom)
            placed += self._row(row, cell, self.gap)
            top = bottom + self.gap
        return placed, top - view.top

    def _row(self, row: Row, box: Box, gap: int) -> list[Placed]:
        placed = []
        for c, widget in enumerate(row):
            left = box.left + (box.width + gap) * c // len(row)
            right = box.left + (box.width + gap) * (c + 1) // len(row) - gap
            cell = Box(left, box.top, right, box.bottom)
            if any(widget.inset):
                cell = _inset(cell, widget.inset)
            label = Box(cell.left, cell.top, cell.left, cell.bottom)
            if widget.label:
                split = cell.left + int(cell.width * LABEL_SHARE)
                label, cell = Box(cell.left, cell.top, split, cell.bottom), cell._replace(left=split)
            placed.append(Placed(widget, cell, label))
        return placed

    def item_height(self, box: Box, visible: int) -> int:
        """Return the height of a list's item, pixels."""
        return max(1, box.height // max(1, visible))

    def slider_stops(self, box: Box, count: int) -> list[int]:
        first, last = box.left + self.unit // 2, box.right - 1 - self.unit // 2
        return [first + (last - first) * i // max(1, count - 1) for i in range(count)]

    def text_columns(self, box: Box) -> int:
        """Return how many characters a text field shows."""
        return max(1, (box.width - 2 * self.gap) // self.advance)


def _inset(cell: Box, inset: tuple[float, float, float, float]) -> Box:
    left, top, right, bottom = inset
    return Box(
        cell.left + round(left * cell.width),
        cell.top + round(top * cell.height),
        cell.right - round(right * cell.width),
        cell.bottom - round(bottom * cell.height),
    )
