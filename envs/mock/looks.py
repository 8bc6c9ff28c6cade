"""How each widget looks, inside its box."""

from __future__ import annotations

from dartsim.envs.mock import colors
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.glyphs import CHECK
from dartsim.envs.mock.pen import Pen
from dartsim.envs.mock.pointer import first_visible
from dartsim.envs.mock.widgets import Bin, Button, CheckBox, Chip, Label, ListBox, Slider, TextField, Widget
from dartsim.envs.mock.window import Placed, Window


def draw_widget(pen: Pen, window: Window, placed: Placed, shown: Box, *, focused: bool) -> None:
    """Draw a widget and its label, clipped to what the window shows."""
    view_clip = pen.clip
    widget, box = placed.widget, placed.box.moved(0, -window.scroll)
    if widget.label:
        label = placed.label.moved(0, -window.scroll)
        pen.clip = label._replace(top=max(label.top, shown.top), bottom=min(label.bottom, shown.bottom))
        pen.write(widget.label, label, colors.INK)
    pen.clip = shown
    match widget:
        case Label():
            pen.write(widget.text, box, colors.named(widget.color) if widget.color else colors.INK)
        case Button():
            _button(pen, widget, box, focused)
        case CheckBox():
            _check_box(pen, widget, box, focused)
        case TextField():
            _text_field(pen, widget, box, focused)
        case ListBox():
            _list_box(pen, widget, box, focused)
        case Slider():
            _slider(pen, widget, box, focused)
        case Chip():
            _chip(pen, widget, box, focused)
        case Bin():
            pen.frame(box, colors.EDGE, colors.FACE)
            pen.write(widget.text, box, colors.INK, centred=True)
    pen.clip = view_clip


def _edge(focused: bool) -> colors.Color:
    return colors.ACCENT if focused else colors.EDGE


def _ink(widget: Widget) -> colors.Color:
    return colors.INK if widget.enabled else colors.FAINT


def _button(pen: Pen, button: Button, box: Box, focused: bool) -> None:
    face = colors.named(button.color) if button.color else colors.FACE
    thick = pen.layout.scale
    corner = min(thick, box.width // 4, box.height // 4)
    # Rounded corners: an upright and a lying box, each short of the corners.
    pen.fill(Box(box.left + corner, box.top, box.right - corner, box.bottom), _edge(focused))
    pen.fill(Box(box.left, box.top + corner, box.right, box.bottom - corner), _edge(focused))
    pen.fill(box.shrunk(thick), face)
    ink = colors.ink_on(face) if button.enabled else colors.FAINT
    pen.write(button.text, box, ink, centred=True)


def _check_box(pen: Pen, widget: CheckBox, box: Box, focused: bool) -> None:
    margin = pen.layout.gap
    side = box.height - 2 * margin
    square = Box(box.left + margin, box.top + margin, box.left + margin + side, box.bottom - margin)
    pen.frame(square, _edge(focused), colors.PAPER, thick=2 if focused else 1)
    if widget.checked:
        pen.fill(square.shrunk(2), colors.ACCENT)
        pen.write(CHECK, square, colors.PAPER, centred=True)
    pen.write(widget.text, box._replace(left=square.right), _ink(widget))


def _text_field(pen: Pen, field: TextField, box: Box, focused: bool) -> None:
    layout = pen.layout
    pen.frame(box, _edge(focused), colors.PAPER if field.enabled else colors.FACE, layout.scale)
    columns = layout.text_columns(box)
    first = first_visible(field, columns)
    shown = field.text[first : first + columns]
    if field.selected and focused:
        left = box.left + layout.gap
        wide = min(len(shown) * layout.advance, box.width - 2 * layout.gap)
        pen.fill(Box(left, box.top + 2, left + wide, box.bottom - 2), colors.SELECTION)
    pen.write(shown, box, _ink(field))
    if focused and not field.selected:
        x = box.left + layout.gap + (field.caret - first) * layout.advance - layout.scale
        pen.fill(Box(x, box.top + 2, x + layout.scale, box.bottom - 2), colors.ACCENT)


def _list_box(pen: Pen, widget: ListBox, box: Box, focused: bool) -> None:
    layout = pen.layout
    pen.frame(box, _edge(focused), colors.PAPER)
    high = layout.item_height(box, widget.visible)
    for row, item in enumerate(widget.items[widget.scroll : widget.scroll + widget.visible]):
        line = Box(box.left + 1, box.top + row * high, box.right - 1, box.top + (row + 1) * high)
        if widget.scroll + row == widget.selected:
            pen.fill(line, colors.SELECTION)
        pen.write(item, line, _ink(widget))
    if widget.max_scroll:
        bar = box.shrunk(1)._replace(left=box.right - 1 - max(2, layout.gap))
        start = bar.top + bar.height * widget.scroll // len(widget.items)
        length = max(2, bar.height * widget.visible // len(widget.items))
        pen.fill(bar, colors.FACE)
        pen.fill(Box(bar.left, start, bar.right, min(bar.bottom, start + length)), colors.FAINT)


def _slider(pen: Pen, slider: Slider, box: Box, focused: bool) -> None:
    layout = pen.layout
    stops = layout.slider_stops(box, slider.maximum - slider.minimum + 1)
    middle = (box.top + box.bottom) // 2
    pen.fill(Box(stops[0], middle - layout.scale, stops[-1] + 1, middle + layout.scale), colors.FAINT)
    for x in stops:
        pen.fill(Box(x, middle - 3 * layout.scale, x + layout.scale, middle + 3 * layout.scale), colors.EDGE)
    at, half = stops[slider.at - slider.minimum], max(2, layout.unit // 5)
    handle = Box(at - half, box.top + 1, at + half + 1, box.bottom - 1)
    pen.frame(handle, _edge(focused), colors.ACCENT if slider.enabled else colors.FAINT)


def _chip(pen: Pen, chip: Chip, box: Box, focused: bool) -> None:
    face = colors.named(chip.color or "yellow")
    if chip.bin is None:
        pen.frame(box, _edge(focused), face)
        pen.write(chip.text, box, colors.ink_on(face), centred=True)
    else:
        pen.frame(box, colors.FAINT, colors.WINDOW)
        pen.write(f"{chip.text} {CHECK}", box, colors.FAINT, centred=True)
