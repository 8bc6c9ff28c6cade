"""What there is to draw: the desktop's state as a list of rectangles and texts, back to front.

The list is a pure function of the state. A *mark* is one entry; its box is clipped already, so that nothing of a
widget lies outside the box that the accessibility tree tells.
"""

from __future__ import annotations

from dartsim.envs.mock import colors
from dartsim.envs.mock.desktop import Desktop
from dartsim.envs.mock.font import POINTER_DARK, POINTER_HEIGHT, POINTER_LIGHT, POINTER_WIDTH
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.glyphs import CROSS
from dartsim.envs.mock.looks import draw_widget
from dartsim.envs.mock.pen import Mark, Pen
from dartsim.envs.mock.window import Window


def scene(desktop: Desktop) -> list[Mark]:
    """Return everything there is to draw."""
    pen = Pen(desktop.layout)
    pen.fill(desktop.layout.screen, desktop.background)
    for window in desktop.windows:
        _frame(pen, desktop, window)
        view = desktop.layout.viewport(window)
        top = window is desktop.top
        for index, placed, box in desktop.shown_widgets(window):
            draw_widget(pen, window, placed, box, focused=top and index == window.focus)
        pen.clip = desktop.layout.screen
        _scroll_bar(pen, window, view)
    _open_menu(pen, desktop)
    pen.sign(POINTER_LIGHT, desktop.x, desktop.y, POINTER_WIDTH, POINTER_HEIGHT, colors.PAPER)
    pen.sign(POINTER_DARK, desktop.x, desktop.y, POINTER_WIDTH, POINTER_HEIGHT, colors.INK)
    return pen.marks


def _frame(pen: Pen, desktop: Desktop, window: Window) -> None:
    """Draw a window's edge, title bar, close box and menu bar."""
    if window.bare:
        return
    layout = desktop.layout
    pen.frame(window.box, colors.EDGE, colors.WINDOW)
    title, close = layout.title(window), layout.close(window)
    pen.fill(title, colors.TITLE if window is desktop.top else colors.TITLE_BEHIND)
    pen.write(window.title, title._replace(right=close.left), colors.PAPER)
    pen.fill(close, colors.CLOSE)
    pen.write(CROSS, close, colors.PAPER, centred=True)
    if window.menus:
        pen.fill(layout.menu_bar(window), colors.FACE)
        for index, (menu, box) in enumerate(zip(window.menus, layout.menu_titles(window), strict=True)):
            opened = desktop.open_menu is not None and desktop.open_menu[:2] == (window.id, index)
            if opened:
                pen.fill(box, colors.SELECTION)
            pen.write(menu.title, box, colors.INK, centred=True)


def _scroll_bar(pen: Pen, window: Window, view: Box) -> None:
    """Draw how far a window is scrolled, over the gap at the right edge of its content."""
    if window.content_height <= view.height or view.empty:
        return
    bar = view._replace(left=view.right - max(1, pen.layout.gap - 1))
    start = bar.top + bar.height * window.scroll // window.content_height
    length = max(2, bar.height * view.height // window.content_height)
    pen.fill(bar, colors.FACE)
    pen.fill(Box(bar.left, start, bar.right, min(bar.bottom, start + length)), colors.FAINT)


def _open_menu(pen: Pen, desktop: Desktop) -> None:
    if desktop.open_menu is None:
        return
    window_id, index, chosen = desktop.open_menu
    window = desktop.window(window_id)
    assert window is not None
    boxes = desktop.layout.menu_items(window, index)
    for i, (item, box) in enumerate(zip(window.menus[index].items, boxes, strict=True)):
        pen.frame(box, colors.FAINT, colors.SELECTION if i == chosen else colors.PAPER)
        enabled = not item.startswith("-")
        pen.write(item.removeprefix("-"), box, colors.INK if enabled else colors.FAINT)
