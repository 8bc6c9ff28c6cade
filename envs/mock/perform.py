"""Carries out actions on a desktop: the mouse here, the keys in ``keyboard``; and opens dialogs that interrupt.

Lists, sliders, text fields, menus and title bars react when the button goes down; buttons, check boxes and close
boxes when it is released over what it was pressed on; a chip falls into the bin it is released over.
"""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import MODIFIERS
from dartsim.envs.mock import keyboard
from dartsim.envs.mock.commands import choose_item, press_button, toggle_menu
from dartsim.envs.mock.desktop import Grip, Target, VirtualDesktop
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.widgets import Button, CheckBox, Chip, ListBox, MockWindow, Slider, TextField, Widget


def perform(desktop: VirtualDesktop, actions: Sequence[act.Action]) -> None:
    """Carry out the actions of one turn; DONE and FAIL end it."""
    for action in actions:
        if isinstance(action, (act.Done, act.Fail)):
            break
        _one(desktop, action)
    desktop.actions += 1
    _interrupt(desktop)


def _interrupt(desktop: VirtualDesktop) -> None:
    """Open a dialog that is due, unless a modal one is open."""
    for due in desktop.interrupts:
        if desktop.actions >= due.after and not desktop.modal:
            desktop.interrupts.remove(due)
            desktop.open(due.spec)
            desktop.grip = None
            break


def _one(desktop: VirtualDesktop, action: act.Action) -> None:
    match action:
        case act.Move(x, y):
            move(desktop, x, y)
        case act.Click(x, y, button, count):
            if x is not None and y is not None:
                move(desktop, x, y)
            _click(desktop, button, count)
        case act.Drag(x, y, button):
            _hold(desktop, button, down=True)
            move(desktop, x, y)
            _hold(desktop, button, down=False)
        case act.Down(button) | act.Up(button):
            _hold(desktop, button, down=isinstance(action, act.Down))
        case act.Scroll(_, dy):
            wheel(desktop, dy)
        case act.TypeText(text):
            keyboard.write(desktop, text)
        case act.Press(key):
            keyboard.tap(desktop, key)
        case act.Hotkey(keys):
            keyboard.chord(desktop, keys)
        case act.KeyDown(key) if key in MODIFIERS:
            desktop.held.add(key)
        case act.KeyDown(key):
            keyboard.tap(desktop, key)
        case act.KeyUp(key):
            desktop.held.discard(key)
        case act.Wait() | act.Done() | act.Fail():
            pass


def _click(desktop: VirtualDesktop, button: str, count: int) -> None:
    if button != "left":
        return
    desktop.grip = None
    for _ in range(count):
        press(desktop)
        release(desktop)
    if count > 1:
        double(desktop)


def _hold(desktop: VirtualDesktop, button: str, *, down: bool) -> None:
    if button == "left":
        (press if down else release)(desktop)


PAGE_NOTCHES = 5
"""Notches of the wheel that scroll a list by its visible rows but one, and a window's content by a third, so that
whatever fits into the window can be scrolled into view whole."""


def move(desktop: VirtualDesktop, x: int, y: int) -> None:
    """Move the pointer, and what the pressed button holds with it."""
    layout = desktop.layout
    desktop.x, desktop.y = min(max(x, 0), layout.width - 1), min(max(y, 0), layout.height - 1)
    grip = desktop.grip
    if grip is None or grip.target.window is None:
        return
    window = grip.target.window
    if grip.target.part == "title":
        desktop.move_window(window, desktop.x - grip.x, desktop.y - grip.y)
        grip.x, grip.y = desktop.x, desktop.y
    elif grip.target.part == "widget":
        widget = window.placed[grip.target.number].widget
        if isinstance(widget, Slider) and widget.enabled:
            _slide(desktop, window, grip.target.number, widget)


def press(desktop: VirtualDesktop) -> None:
    """Press the left button."""
    target = desktop.target(desktop.x, desktop.y)
    if _menu_press(desktop, target):
        return
    window = target.window
    if window is None or (desktop.modal and window is not desktop.top):
        return
    desktop.raise_window(window)
    desktop.grip = Grip(target, desktop.x, desktop.y)
    if target.part == "menu_title":
        toggle_menu(desktop, window, target.number)
    elif target.part == "widget":
        _widget_press(desktop, window, target.number)
    elif target.part == "content":
        window.focus = -1


def release(desktop: VirtualDesktop) -> None:
    """Release the left button."""
    grip, desktop.grip = desktop.grip, None
    if grip is None:
        return
    window, part = grip.target.window, grip.target.part
    assert window is not None
    if part == "widget":
        widget = window.placed[grip.target.number].widget
        if isinstance(widget, Chip) and widget.enabled:
            _drop(desktop, widget)
            return
    if desktop.target(desktop.x, desktop.y) != grip.target:
        return
    if part == "close":
        desktop.close(window)
    elif part == "widget":
        _widget_release(desktop, window, window.placed[grip.target.number].widget)


def double(desktop: VirtualDesktop) -> None:
    """Select a text field's text, as the second click of a double click does."""
    target = desktop.target(desktop.x, desktop.y)
    if target.part == "widget" and target.window is desktop.top and target.window is not None:
        widget = target.window.placed[target.number].widget
        if isinstance(widget, TextField) and widget.enabled and widget.text:
            widget.selected, widget.caret = True, len(widget.text)


def wheel(desktop: VirtualDesktop, notches: int) -> None:
    """Turn the wheel; positive is up. A list under the pointer scrolls, or else the window's content."""
    target = desktop.target(desktop.x, desktop.y)
    window = target.window
    if not notches or window is None or desktop.open_menu or (desktop.modal and window is not desktop.top):
        return
    if target.part == "widget":
        widget = window.placed[target.number].widget
        if isinstance(widget, ListBox) and widget.scroll_by(_steps(notches, widget.visible - 1)):
            return
    layout = desktop.layout
    rows = layout.viewport(window).height // layout.unit // 3
    window.scroll += _steps(notches, rows) * layout.unit
    layout.keep_scroll(window)


def _steps(notches: int, rows: int) -> int:
    """Return how many rows down a turn of the wheel goes, at least one; ``rows`` for 5 notches."""
    size = max(1, abs(notches) * rows // PAGE_NOTCHES)
    return -size if notches > 0 else size


def _menu_press(desktop: VirtualDesktop, target: Target) -> bool:
    """Pass a press to an open menu; return whether it used it. A press elsewhere closes it, and acts there."""
    if desktop.open_menu is None:
        return False
    if target.part == "menu_item":
        assert target.window is not None
        choose_item(desktop, target.window, target.number)
        return True
    if target.part != "menu_title" or target.window is not desktop.top:
        desktop.open_menu = None
    return False


def _widget_press(desktop: VirtualDesktop, window: MockWindow, index: int) -> None:
    placed = window.placed[index]
    widget = placed.widget
    if not widget.enabled or not widget.focusable:
        window.focus = -1
        return
    window.focus = index
    box = placed.box.moved(0, -window.scroll)
    match widget:
        case TextField():
            columns = desktop.layout.text_columns(box)
            first = widget.first_visible(columns)
            widget.place(first + round((desktop.x - box.left - desktop.layout.gap) / desktop.layout.advance))
        case ListBox():
            item = list_item_at(desktop, widget, box, desktop.y)
            if item is not None:
                widget.selected = item
        case Slider():
            _slide(desktop, window, index, widget)


def _widget_release(desktop: VirtualDesktop, window: MockWindow, widget: Widget) -> None:
    if not widget.enabled:
        return
    if isinstance(widget, Button):
        press_button(desktop, window, widget)
    elif isinstance(widget, CheckBox):
        widget.checked = not widget.checked


def _slide(desktop: VirtualDesktop, window: MockWindow, index: int, slider: Slider) -> None:
    stops = desktop.layout.slider_stops(window.placed[index].box, slider.maximum - slider.minimum + 1)
    nearest = min(range(len(stops)), key=lambda i: abs(stops[i] - desktop.x))
    slider.set(slider.minimum + nearest)


def _drop(desktop: VirtualDesktop, chip: Chip) -> None:
    into = desktop.bin_at(desktop.x, desktop.y)
    if into is not None and into.enabled:
        chip.bin = into.id


def list_item_at(desktop: VirtualDesktop, widget: ListBox, box: Box, y: int) -> int | None:
    """Return the index of a list's item at a height on the screen."""
    row = (y - box.top) // desktop.layout.item_height(box, widget.visible)
    index = widget.scroll + row
    return index if 0 <= row < widget.visible and index < len(widget.items) else None
