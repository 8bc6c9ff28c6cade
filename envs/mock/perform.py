"""Carrying actions out on a desktop, and the dialogs that come in between."""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.envs.actions.keys import MODIFIERS
from dartsim.envs.actions.model import (
    Action,
    Click,
    Done,
    Down,
    Drag,
    Fail,
    Hotkey,
    KeyDown,
    KeyUp,
    Move,
    Press,
    Scroll,
    TypeText,
    Up,
    Wait,
)
from dartsim.envs.mock import keyboard, pointer
from dartsim.envs.mock.desktop import VirtualDesktop


def perform(desktop: VirtualDesktop, actions: Sequence[Action]) -> None:
    """Carry out the actions of one turn; DONE and FAIL end it."""
    for action in actions:
        if isinstance(action, (Done, Fail)):
            break
        _one(desktop, action)
    desktop.actions += 1
    _interrupt(desktop)


def _interrupt(desktop: VirtualDesktop) -> None:
    """Open the dialogs whose time has come, unless a modal one is open."""
    for due in desktop.interrupts:
        if desktop.actions >= due.after and not desktop.modal:
            desktop.interrupts.remove(due)
            desktop.open(due.spec)
            desktop.grip = None
            break


def _one(desktop: VirtualDesktop, action: Action) -> None:
    match action:
        case Move(x, y):
            pointer.move(desktop, x, y)
        case Click(x, y, button, count):
            if x is not None and y is not None:
                pointer.move(desktop, x, y)
            _click(desktop, button, count)
        case Drag(x, y, button):
            _hold(desktop, button, down=True)
            pointer.move(desktop, x, y)
            _hold(desktop, button, down=False)
        case Down(button) | Up(button):
            _hold(desktop, button, down=isinstance(action, Down))
        case Scroll(_, dy):
            pointer.wheel(desktop, dy)
        case TypeText(text):
            keyboard.write(desktop, text)
        case Press(key):
            keyboard.tap(desktop, key)
        case Hotkey(keys):
            keyboard.chord(desktop, keys)
        case KeyDown(key) if key in MODIFIERS:
            desktop.held.add(key)
        case KeyDown(key):
            keyboard.tap(desktop, key)
        case KeyUp(key):
            desktop.held.discard(key)
        case Wait() | Done() | Fail():
            pass


def _click(desktop: VirtualDesktop, button: str, count: int) -> None:
    if button != "left":
        return
    desktop.grip = None
    for _ in range(count):
        pointer.press(desktop)
        pointer.release(desktop)
    if count > 1:
        pointer.double(desktop)


def _hold(desktop: VirtualDesktop, button: str, *, down: bool) -> None:
    if button == "left":
        (pointer.press if down else pointer.release)(desktop)
