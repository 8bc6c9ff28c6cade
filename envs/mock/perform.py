"""Carries out actions on a desktop, and opens dialogs that interrupt.

A button reacts when the mouse is released over what it was pressed on. Its ``command`` is one word or
``word:argument``: ``close`` closes its window; ``next`` and ``back`` turn its pages, and ``page:<number>`` shows one of
them; ``open:<id>`` opens a window from the stash, or raises it. Every press is counted, whatever the command.
"""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.envs.actions import model as act
from dartsim.envs.mock.desktop import Grip, VirtualDesktop
from dartsim.envs.mock.widgets import Button, MockWindow


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
    """Carry out one action. Scrolling, modifiers and typed characters change nothing here."""
    match action:
        case act.Move(x, y):
            move(desktop, x, y)
        case act.Click(x, y, button, count):
            if x is not None and y is not None:
                move(desktop, x, y)
            if button == "left":
                desktop.grip = None
                for _ in range(count):
                    press(desktop)
                    release(desktop)
        case act.Drag(x, y, button):
            _hold(desktop, button, down=True)
            move(desktop, x, y)
            _hold(desktop, button, down=False)
        case act.Down(button) | act.Up(button):
            _hold(desktop, button, down=isinstance(action, act.Down))
        case act.TypeText(text):
            for _ in range(text.count("\n")):
                tap(desktop, "enter")
        case act.Press(key) | act.KeyDown(key) | act.Hotkey((key,)):
            tap(desktop, key)


def _hold(desktop: VirtualDesktop, button: str, *, down: bool) -> None:
    if button == "left":
        (press if down else release)(desktop)


def move(desktop: VirtualDesktop, x: int, y: int) -> None:
    """Move the pointer, and the window whose title bar it holds."""
    layout, grip = desktop.layout, desktop.grip
    desktop.x, desktop.y = min(max(x, 0), layout.width - 1), min(max(y, 0), layout.height - 1)
    if grip is not None and grip.target.part == "title" and grip.target.window is not None:
        desktop.move_window(grip.target.window, desktop.x - grip.x, desktop.y - grip.y)
        grip.x, grip.y = desktop.x, desktop.y


def press(desktop: VirtualDesktop) -> None:
    """Press the left button."""
    target = desktop.target(desktop.x, desktop.y)
    window = target.window
    if window is None or (desktop.modal and window is not desktop.top):
        return
    desktop.raise_window(window)
    desktop.grip = Grip(target, desktop.x, desktop.y)
    if target.part == "widget":
        window.focus = target.number if isinstance(window.placed[target.number].widget, Button) else -1
    elif target.part == "content":
        window.focus = -1


def release(desktop: VirtualDesktop) -> None:
    """Release the left button."""
    grip, desktop.grip = desktop.grip, None
    if grip is None or desktop.target(desktop.x, desktop.y) != grip.target:
        return
    window = grip.target.window
    assert window is not None
    if grip.target.part == "close":
        desktop.close(window)
    elif grip.target.part == "widget":
        press_button(desktop, window, grip.target.number)


def tap(desktop: VirtualDesktop, key: str) -> None:
    """Press and release a key: enter and space press the focused button, enter else the window's default."""
    window = desktop.top
    if window is None or key not in ("enter", "space"):
        return
    if window.focus >= 0:
        press_button(desktop, window, window.focus)
    elif key == "enter":
        for index, placed in enumerate(window.placed):
            if placed.widget.id == window.default:
                press_button(desktop, window, index)
                break


def press_button(desktop: VirtualDesktop, window: MockWindow, index: int) -> None:
    """Press a widget of the page, if it is a button."""
    button = window.placed[index].widget
    if not isinstance(button, Button):
        return
    desktop.pressed.append(f"{window.id}.{button.id}")
    word, _, argument = button.command.partition(":")
    match word:
        case "close":
            desktop.close(window)
        case "next" | "back":
            show_page(desktop, window, window.page + (1 if word == "next" else -1))
        case "page":
            show_page(desktop, window, int(argument))
        case "open" if (opened := desktop.window(argument)) is not None:
            desktop.raise_window(opened)
        case "open" if argument in desktop.stash:
            desktop.open(desktop.stash[argument])


def show_page(desktop: VirtualDesktop, window: MockWindow, number: int) -> None:
    """Show a page; the first or the last one if there is no such page."""
    window.page, window.focus = min(max(number, 0), len(window.pages) - 1), -1
    desktop.layout.place_page(window)
