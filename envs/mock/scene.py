"""The scene: the desktop's state as a list of rectangles and texts, back to front.

The list is a pure function of the state. A *mark* is one entry; its box is already clipped, so that nothing of a widget
lies outside the box in the accessibility tree.
"""

from __future__ import annotations

from typing import NamedTuple

from dartsim.envs.mock import colors
from dartsim.envs.mock.desktop import VirtualDesktop
from dartsim.envs.mock.font import CHECK, CROSS, POINTER_DARK, POINTER_HEIGHT, POINTER_LIGHT, POINTER_WIDTH
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.layout import ScreenLayout
from dartsim.envs.mock.widgets import (
    Bin,
    Button,
    CheckBox,
    Chip,
    Label,
    ListBox,
    MockWindow,
    Placed,
    Slider,
    TextField,
    Widget,
)


class DrawOp(NamedTuple):
    """A rectangle, or the visible part of a text that begins at ``x`` and ``y``."""

    left: int
    top: int
    right: int
    bottom: int
    color: colors.Color
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

    def fill(self, box: Box, color: colors.Color) -> None:
        left, top, right, bottom = box
        clip_left, clip_top, clip_right, clip_bottom = self.clip
        # Not min and max: this runs a hundred times a frame.
        left = left if left > clip_left else clip_left
        top = top if top > clip_top else clip_top
        right = right if right < clip_right else clip_right
        bottom = bottom if bottom < clip_bottom else clip_bottom
        if left < right and top < bottom:
            self.marks.append(DrawOp(left, top, right, bottom, color))

    def frame(self, box: Box, edge: colors.Color, face: colors.Color, thick: int = 1) -> None:
        self.fill(box, edge)
        self.fill(box.shrunk(thick), face)

    def write(self, text: str, box: Box, color: colors.Color, *, centered: bool = False) -> None:
        """Write a line of text in the vertical middle of a box, cut off at its edges."""
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

    def sign(self, sign: str, x: int, y: int, width: int, height: int, color: colors.Color) -> None:
        """Draw a sign of the font with its upper left corner at a pixel."""
        scale, clip = self.layout.scale, self.clip
        right, bottom = min(x + width * scale, clip[2]), min(y + height * scale, clip[3])
        if x < right and y < bottom:
            self.marks.append(DrawOp(x, y, right, bottom, color, sign, x, y, scale))


def scene(desktop: VirtualDesktop) -> list[DrawOp]:
    """Return the marks of the whole screen."""
    canvas = Canvas(desktop.layout)
    canvas.fill(desktop.layout.screen, desktop.background)
    for window in desktop.windows:
        _frame(canvas, desktop, window)
        view = desktop.layout.viewport(window)
        top = window is desktop.top
        for index, placed, box in desktop.shown_widgets(window):
            draw_widget(canvas, window, placed, box, focused=top and index == window.focus)
        canvas.clip = desktop.layout.screen
        _scroll_bar(canvas, window, view)
    _open_menu(canvas, desktop)
    canvas.sign(POINTER_LIGHT, desktop.x, desktop.y, POINTER_WIDTH, POINTER_HEIGHT, colors.PAPER)
    canvas.sign(POINTER_DARK, desktop.x, desktop.y, POINTER_WIDTH, POINTER_HEIGHT, colors.INK)
    return canvas.marks


def _frame(canvas: Canvas, desktop: VirtualDesktop, window: MockWindow) -> None:
    """Draw a window's edge, title bar, close box and menu bar."""
    if window.bare:
        if window.color:
            canvas.fill(window.box, colors.color_of(window.color))
        return
    layout = desktop.layout
    canvas.frame(window.box, colors.EDGE, colors.WINDOW)
    title, close = layout.title(window), layout.close(window)
    canvas.fill(title, colors.TITLE if window is desktop.top else colors.TITLE_BEHIND)
    canvas.write(window.title, title._replace(right=close.left), colors.PAPER)
    canvas.fill(close, colors.CLOSE)
    canvas.write(CROSS, close, colors.PAPER, centered=True)
    if window.menus:
        canvas.fill(layout.menu_bar(window), colors.FACE)
        for index, (menu, box) in enumerate(zip(window.menus, layout.menu_titles(window), strict=True)):
            opened = desktop.open_menu is not None and desktop.open_menu[:2] == (window.id, index)
            if opened:
                canvas.fill(box, colors.SELECTION)
            canvas.write(menu.title, box, colors.INK, centered=True)


def _scroll_bar(canvas: Canvas, window: MockWindow, view: Box) -> None:
    """Draw the scroll bar, over the gap at the right edge of a window's content."""
    if window.content_height <= view.height or view.empty:
        return
    bar = view._replace(left=view.right - max(1, canvas.layout.gap - 1))
    start = bar.top + bar.height * window.scroll // window.content_height
    length = max(2, bar.height * view.height // window.content_height)
    canvas.fill(bar, colors.FACE)
    canvas.fill(Box(bar.left, start, bar.right, min(bar.bottom, start + length)), colors.FAINT)


def _open_menu(canvas: Canvas, desktop: VirtualDesktop) -> None:
    if desktop.open_menu is None:
        return
    window_id, index, chosen = desktop.open_menu
    window = desktop.window(window_id)
    assert window is not None
    boxes = desktop.layout.menu_items(window, index)
    for i, (item, box) in enumerate(zip(window.menus[index].items, boxes, strict=True)):
        canvas.frame(box, colors.FAINT, colors.SELECTION if i == chosen else colors.PAPER)
        enabled = not item.startswith("-")
        canvas.write(item.removeprefix("-"), box, colors.INK if enabled else colors.FAINT)


def draw_widget(canvas: Canvas, window: MockWindow, placed: Placed, shown: Box, *, focused: bool) -> None:
    """Draw a widget and its label, clipped to what the window shows."""
    view_clip = canvas.clip
    widget, box = placed.widget, placed.box.moved(0, -window.scroll)
    if widget.label:
        label = placed.label.moved(0, -window.scroll)
        canvas.clip = label._replace(top=max(label.top, shown.top), bottom=min(label.bottom, shown.bottom))
        canvas.write(widget.label, label, colors.INK)
    canvas.clip = shown
    match widget:
        case Label():
            canvas.write(widget.text, box, colors.color_of(widget.color) if widget.color else colors.INK)
        case Button():
            _button(canvas, widget, box, focused)
        case CheckBox():
            _check_box(canvas, widget, box, focused)
        case TextField():
            _text_field(canvas, widget, box, focused)
        case ListBox():
            _list_box(canvas, widget, box, focused)
        case Slider():
            _slider(canvas, widget, box, focused)
        case Chip():
            _chip(canvas, widget, box, focused)
        case Bin():
            canvas.frame(box, colors.EDGE, colors.FACE)
            canvas.write(widget.text, box, colors.INK, centered=True)
    canvas.clip = view_clip


def _edge(focused: bool) -> colors.Color:
    return colors.ACCENT if focused else colors.EDGE


def _ink(widget: Widget) -> colors.Color:
    return colors.INK if widget.enabled else colors.FAINT


def _button(canvas: Canvas, button: Button, box: Box, focused: bool) -> None:
    face = colors.color_of(button.color) if button.color else colors.FACE
    thick = canvas.layout.scale
    corner = min(thick, box.width // 4, box.height // 4)
    # Rounded corners: an upright and a lying box, each short of the corners.
    canvas.fill(Box(box.left + corner, box.top, box.right - corner, box.bottom), _edge(focused))
    canvas.fill(Box(box.left, box.top + corner, box.right, box.bottom - corner), _edge(focused))
    canvas.fill(box.shrunk(thick), face)
    ink = colors.ink_on(face) if button.enabled else colors.FAINT
    canvas.write(button.text, box, ink, centered=True)


def _check_box(canvas: Canvas, widget: CheckBox, box: Box, focused: bool) -> None:
    margin = canvas.layout.gap
    side = box.height - 2 * margin
    square = Box(box.left + margin, box.top + margin, box.left + margin + side, box.bottom - margin)
    canvas.frame(square, _edge(focused), colors.PAPER, thick=2 if focused else 1)
    if widget.checked:
        canvas.fill(square.shrunk(2), colors.ACCENT)
        canvas.write(CHECK, square, colors.PAPER, centered=True)
    canvas.write(widget.text, box._replace(left=square.right), _ink(widget))


def _text_field(canvas: Canvas, field: TextField, box: Box, focused: bool) -> None:
    layout = canvas.layout
    canvas.frame(box, _edge(focused), colors.PAPER if field.enabled else colors.FACE, layout.scale)
    columns = layout.text_columns(box)
    first = field.first_visible(columns)
    shown = field.text[first : first + columns]
    if field.selected and focused:
        left = box.left + layout.gap
        wide = min(len(shown) * layout.advance, box.width - 2 * layout.gap)
        canvas.fill(Box(left, box.top + 2, left + wide, box.bottom - 2), colors.SELECTION)
    canvas.write(shown, box, _ink(field))
    if focused and not field.selected:
        x = box.left + layout.gap + (field.caret - first) * layout.advance - layout.scale
        canvas.fill(Box(x, box.top + 2, x + layout.scale, box.bottom - 2), colors.ACCENT)


def _list_box(canvas: Canvas, widget: ListBox, box: Box, focused: bool) -> None:
    layout = canvas.layout
    canvas.frame(box, _edge(focused), colors.PAPER)
    high = layout.item_height(box, widget.visible)
    for row, item in enumerate(widget.items[widget.scroll : widget.scroll + widget.visible]):
        line = Box(box.left + 1, box.top + row * high, box.right - 1, box.top + (row + 1) * high)
        if widget.scroll + row == widget.selected:
            canvas.fill(line, colors.SELECTION)
        canvas.write(item, line, _ink(widget))
    if widget.max_scroll:
        bar = box.shrunk(1)._replace(left=box.right - 1 - max(2, layout.gap))
        start = bar.top + bar.height * widget.scroll // len(widget.items)
        length = max(2, bar.height * widget.visible // len(widget.items))
        canvas.fill(bar, colors.FACE)
        canvas.fill(Box(bar.left, start, bar.right, min(bar.bottom, start + length)), colors.FAINT)


def _slider(canvas: Canvas, slider: Slider, box: Box, focused: bool) -> None:
    layout = canvas.layout
    stops = layout.slider_stops(box, slider.maximum - slider.minimum + 1)
    middle = (box.top + box.bottom) // 2
    canvas.fill(Box(stops[0], middle - layout.scale, stops[-1] + 1, middle + layout.scale), colors.FAINT)
    for x in stops:
        canvas.fill(Box(x, middle - 3 * layout.scale, x + layout.scale, middle + 3 * layout.scale), colors.EDGE)
    at, half = stops[slider.at - slider.minimum], max(2, layout.unit // 5)
    handle = Box(at - half, box.top + 1, at + half + 1, box.bottom - 1)
    canvas.frame(handle, _edge(focused), colors.ACCENT if slider.enabled else colors.FAINT)


def _chip(canvas: Canvas, chip: Chip, box: Box, focused: bool) -> None:
    face = colors.color_of(chip.color or "yellow")
    if chip.bin is None:
        canvas.frame(box, _edge(focused), face)
        canvas.write(chip.text, box, colors.ink_on(face), centered=True)
    else:
        canvas.frame(box, colors.FAINT, colors.WINDOW)
        canvas.write(f"{chip.text} {CHECK}", box, colors.FAINT, centered=True)
