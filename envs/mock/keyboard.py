"""The keyboard: keys go to an open menu, or to the top window's focused widget."""

from __future__ import annotations

from dartsim.envs.actions.grammar import MODIFIERS, SHIFTED
from dartsim.envs.mock.commands import focused_text, menu_key, press_button, press_named
from dartsim.envs.mock.desktop import VirtualDesktop
from dartsim.envs.mock.widgets import Button, CheckBox, ListBox, MockWindow, Slider, TextField

_CONTROLS = {"\n": "enter", "\r": "enter", "\t": "tab", "\b": "backspace"}


def write(desktop: VirtualDesktop, text: str) -> None:
    """Type characters; line ends, tabulators and backspaces are keys."""
    run = ""
    for char in text:
        if char in _CONTROLS:
            _insert(desktop, run)
            run = ""
            tap(desktop, _CONTROLS[char])
        else:
            run += char
    _insert(desktop, run)


def _insert(desktop: VirtualDesktop, text: str) -> None:
    if desktop.held - {"shift"}:
        for char in text:
            tap(desktop, char)
        return
    field = focused_text(desktop.top) if desktop.open_menu is None else None
    if field is not None and text:
        field.insert("".join(_typed(desktop, char) for char in text))


def _typed(desktop: VirtualDesktop, char: str) -> str:
    """Return what a character's key types; one that needs shift itself releases it afterwards, as in pyautogui."""
    if "shift" not in desktop.held:
        return char
    desktop.held -= {"shift"} if char in SHIFTED.values() else set()
    return SHIFTED.get(char, char)


def chord(desktop: VirtualDesktop, keys: tuple[str, ...]) -> None:
    """Press keys together."""
    before = set(desktop.held)
    for key in keys[:-1]:
        desktop.held |= {key} & MODIFIERS
        if key not in MODIFIERS:
            tap(desktop, key)
    tap(desktop, keys[-1])
    desktop.held = before


def tap(desktop: VirtualDesktop, key: str) -> None:
    """Press and release a key, with the modifiers that are held."""
    if key in MODIFIERS:
        return
    window = desktop.top
    if desktop.open_menu is not None:
        menu_key(desktop, key)
    elif window is None:
        return
    elif "ctrl" in desktop.held:
        _editing(desktop, window, key.lower())
    elif "alt" in desktop.held:
        if key == "f4":
            desktop.close(window)
    elif key == "tab":
        _tab(desktop, window, backwards="shift" in desktop.held)
    elif not _widget_key(desktop, window, key):
        _window_key(desktop, window, key)


def _editing(desktop: VirtualDesktop, window: MockWindow, key: str) -> None:
    field = focused_text(window)
    if field is None:
        return
    if key == "a" and field.text:
        field.selected, field.caret = True, len(field.text)
    elif key in ("c", "x") and field.selected:
        desktop.clipboard = field.text
        if key == "x":
            field.clear()
    elif key == "v":
        field.insert(desktop.clipboard)


def _tab(desktop: VirtualDesktop, window: MockWindow, *, backwards: bool) -> None:
    order = [
        index
        for index, placed in enumerate(window.placed)
        if placed.widget.focusable and placed.widget.enabled and not placed.widget.hidden
    ]
    if not order:
        return
    step = -1 if backwards else 1
    at = order.index(window.focus) + step if window.focus in order else (-1 if backwards else 0)
    window.focus = order[at % len(order)]
    desktop.scroll_into_view(window, window.focus)


def _widget_key(desktop: VirtualDesktop, window: MockWindow, key: str) -> bool:
    """Pass a key to the focused widget; return whether it used it."""
    widget = window.focused
    if widget is None or not widget.enabled:
        return False
    match widget, key:
        case TextField(), _:
            return _text_key(desktop, widget, key)
        case Button(), "enter" | "space":
            press_button(desktop, window, widget)
        case CheckBox(), "space":
            widget.checked = not widget.checked
        case ListBox(), "up" | "down" if widget.items:
            widget.select(max(0, widget.selected + (1 if key == "down" else -1)))
        case ListBox(), "home" | "end" if widget.items:
            widget.select(0 if key == "home" else len(widget.items) - 1)
        case ListBox(), "pageup" | "pagedown" if widget.items:
            widget.select(widget.selected + widget.visible * (1 if key == "pagedown" else -1))
        case Slider(), "left" | "down" | "right" | "up":
            widget.set(widget.at + (1 if key in ("right", "up") else -1))
        case Slider(), "home" | "end":
            widget.set(widget.minimum if key == "home" else widget.maximum)
        case _:
            return False
    return True


def _text_key(desktop: VirtualDesktop, field: TextField, key: str) -> bool:
    match key:
        case "backspace" | "delete":
            field.erase(backwards=key == "backspace")
        case "left" | "right":
            field.place(field.caret + (1 if key == "right" else -1))
        case "home" | "end":
            field.place(0 if key == "home" else len(field.text))
        case "space":
            field.insert(" ")
        case _ if len(key) == 1:
            field.insert(_typed(desktop, key))
        case _:
            return False
    return True


def _window_key(desktop: VirtualDesktop, window: MockWindow, key: str) -> None:
    """Pass a key that the widget did not use to the window."""
    match key:
        case "enter" if window.default:
            press_named(desktop, window, window.default)
        case "esc" if window.cancel:
            press_named(desktop, window, window.cancel)
        case "pageup" | "pagedown":
            page = desktop.layout.viewport(window).height - desktop.layout.unit
            window.scroll += page if key == "pagedown" else -page
            desktop.layout.keep_scroll(window)
