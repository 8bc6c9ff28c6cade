"""What pressing a button does: its ``command``, one word or ``word:argument``.

``close`` closes its window; ``submit`` keeps the values of the window's widgets and closes it; ``next`` and
``back`` turn its pages; ``open:<id>`` opens a window from the stash; ``copy:<widget>`` copies a text to the
clipboard. Every press is counted, whatever the command.
"""

from __future__ import annotations

from dartsim.envs.mock.desktop import Desktop
from dartsim.envs.mock.widgets import Button, Space, TextField
from dartsim.envs.mock.window import Window


def press_button(desktop: Desktop, window: Window, button: Button) -> None:
    """Press a button that is enabled."""
    button.presses += 1
    desktop.pressed.append(f"{window.id}.{button.id}")
    word, _, argument = button.command.partition(":")
    match word:
        case "close":
            desktop.close(window)
        case "submit":
            desktop.submitted[window.id] = values_of(window)
            desktop.close(window)
        case "next" | "back":
            turn_page(desktop, window, 1 if word == "next" else -1)
        case "open" if argument in desktop.stash and desktop.window(argument) is None:
            desktop.open(desktop.stash[argument])
        case "copy":
            source = window.widget(argument)
            desktop.clipboard = source.text if source is not None else ""


def values_of(window: Window) -> dict[str, object]:
    """Return the values of all widgets of a window, by id."""
    return {widget.id: widget.value for widget in window.widgets() if not isinstance(widget, Space)}


def turn_page(desktop: Desktop, window: Window, step: int) -> None:
    """Show another page, from its top."""
    page = min(max(window.page + step, 0), len(window.pages) - 1)
    window.page, window.scroll, window.focus = page, 0, -1
    desktop.layout.place_page(window)


def press_named(desktop: Desktop, window: Window, name: str) -> bool:
    """Press a window's button by its id, if its page has it and it is enabled."""
    for placed in window.placed:
        widget = placed.widget
        if widget.id == name and isinstance(widget, Button) and widget.enabled:
            press_button(desktop, window, widget)
            return True
    return False


def focused_text(window: Window | None) -> TextField | None:
    """Return the text field that gets the keys, if one does."""
    widget = window.focused if window is not None else None
    return widget if isinstance(widget, TextField) and widget.enabled else None
