"""The scene: the desktop's state as a list of rectangles and texts, back to front.

The list is a pure function of the state. A *mark* is one entry. Its box is already clipped, so no part of a widget lies
outside its box in the accessibility tree.
"""

from __future__ import annotations

from typing import NamedTuple

from dartsim.envs.mock import colors
from dartsim.envs.mock.desktop import VirtualDesktop
from dartsim.envs.mock.font import CROSS, POINTER_DARK, POINTER_HEIGHT, POINTER_LIGHT, POINTER_WIDTH
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.layout import ScreenLayout
from dartsim.envs.mock.widgets import Button, Label, MockWindow, Widget


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
        # Faster than min and max; this runs a hundred times per frame.
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
        top = window is desktop.top
        for index, placed, shown in desktop.shown_widgets(window):
            canvas.clip = shown
            _draw(canvas, placed.widget, placed.box, focused=top and index == window.focus)
        canvas.clip = desktop.layout.screen
    canvas.sign(POINTER_LIGHT, desktop.x, desktop.y, POINTER_WIDTH, POINTER_HEIGHT, colors.PAPER)
    canvas.sign(POINTER_DARK, desktop.x, desktop.y, POINTER_WIDTH, POINTER_HEIGHT, colors.INK)
    return canvas.marks


def _frame(canvas: Canvas, desktop: VirtualDesktop, window: MockWindow) -> None:
    """Draw a window's edge, title bar and close box."""
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


def _draw(canvas: Canvas, widget: Widget, box: Box, *, focused: bool) -> None:
    match widget:
        case Label():
            canvas.write(widget.text, box, colors.color_of(widget.color) if widget.color else colors.INK)
        case Button():
            _button(canvas, widget, box, colors.ACCENT if focused else colors.EDGE)


def _button(canvas: Canvas, button: Button, box: Box, edge: colors.Color) -> None:
    face = colors.color_of(button.color) if button.color else colors.FACE
    thick = canvas.layout.scale
    corner = min(thick, box.width // 4, box.height // 4)
    # Rounded corners: a tall and a wide box, neither of which covers the corners.
    canvas.fill(Box(box.left + corner, box.top, box.right - corner, box.bottom), edge)
    canvas.fill(Box(box.left, box.top + corner, box.right, box.bottom - corner), edge)
    canvas.fill(box.shrunk(thick), face)
    canvas.write(button.text, box, colors.ink_on(face), centered=True)
