"""What buttons and menus do.

A button's ``command`` is one word or ``word:argument``: ``close`` closes its window; ``submit`` records the values of
the window's widgets and closes it; ``next`` and ``back`` turn its pages, and ``page:<number>`` shows one of them;
``open:<id>`` opens a window from the stash, or raises it; ``copy:<widget>`` copies a text to the clipboard. Every press
is counted, whatever the command. A menu is opened by a click on its title, and closed by a choice, a click elsewhere or
escape.
"""

from __future__ import annotations

from dartsim.envs.mock.desktop import VirtualDesktop
from dartsim.envs.mock.widgets import Button, Menu, MockWindow, Space, TextField


def press_button(desktop: VirtualDesktop, window: MockWindow, button: Button) -> None:
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
            show_page(desktop, window, window.page + (1 if word == "next" else -1))
        case "page":
            show_page(desktop, window, int(argument))
        case "open" if (opened := desktop.window(argument)) is not None:
            desktop.raise_window(opened)
        case "open" if argument in desktop.stash:
            desktop.open(desktop.stash[argument])
        case "copy":
            source = window.widget(argument)
            desktop.clipboard = source.text if source is not None else ""


def values_of(window: MockWindow) -> dict[str, object]:
    """Return the values of all widgets of a window, by id."""
    return {widget.id: widget.value for widget in window.widgets() if not isinstance(widget, Space)}


def show_page(desktop: VirtualDesktop, window: MockWindow, number: int) -> None:
    """Show a page, from its top; the first or the last one if there is no such page."""
    page = min(max(number, 0), len(window.pages) - 1)
    window.page, window.scroll, window.focus = page, 0, -1
    desktop.layout.place_page(window)


def press_named(desktop: VirtualDesktop, window: MockWindow, name: str) -> bool:
    """Press a window's button by its id, if its page has it and it is enabled."""
    for placed in window.placed:
        widget = placed.widget
        if widget.id == name and isinstance(widget, Button) and widget.enabled:
            press_button(desktop, window, widget)
            return True
    return False


def focused_text(window: MockWindow | None) -> TextField | None:
    """Return the text field with the focus, if any."""
    widget = window.focused if window is not None else None
    return widget if isinstance(widget, TextField) and widget.enabled else None


def toggle_menu(desktop: VirtualDesktop, window: MockWindow, index: int) -> None:
    """Open a menu, or close it if it is open."""
    is_open = desktop.open_menu is not None and desktop.open_menu[:2] == (window.id, index)
    desktop.open_menu = None if is_open else (window.id, index, -1)


def choose_item(desktop: VirtualDesktop, window: MockWindow, index: int) -> None:
    """Choose an item of the open menu; a disabled one does nothing and leaves it open."""
    assert desktop.open_menu is not None
    menu = window.menus[desktop.open_menu[1]]
    item = menu.items[index]
    if not item.startswith("-"):
        desktop.choices.append(f"{menu.title} > {item}")
        desktop.open_menu = None


def opened(desktop: VirtualDesktop) -> tuple[MockWindow, Menu] | None:
    """Return the open menu and its window."""
    if desktop.open_menu is None:
        return None
    window = desktop.window(desktop.open_menu[0])
    assert window is not None
    return window, window.menus[desktop.open_menu[1]]


def menu_key(desktop: VirtualDesktop, key: str) -> None:
    """Pass a key to the open menu."""
    menu_and_window = opened(desktop)
    assert menu_and_window is not None
    assert desktop.open_menu is not None
    window, menu = menu_and_window
    _, index, item = desktop.open_menu
    match key:
        case "esc":
            desktop.open_menu = None
        case "up" | "down":
            step = 1 if key == "down" else -1
            start = -1 if step == 1 and item < 0 else item
            desktop.open_menu = (window.id, index, (start + step) % len(menu.items))
        case "left" | "right":
            step = 1 if key == "right" else -1
            desktop.open_menu = (window.id, (index + step) % len(window.menus), -1)
        case "enter" if item >= 0:
            choose_item(desktop, window, item)
