"""Menus: dropped down by a click on their title, closed by a choice, a click elsewhere or escape."""

from __future__ import annotations

from dartsim.envs.mock.desktop import Desktop
from dartsim.envs.mock.window import Menu, Window


def toggle_menu(desktop: Desktop, window: Window, index: int) -> None:
    """Open a menu, or close it if it is open."""
    is_open = desktop.open_menu is not None and desktop.open_menu[:2] == (window.id, index)
    desktop.open_menu = None if is_open else (window.id, index, -1)


def choose_item(desktop: Desktop, window: Window, index: int) -> None:
    """Choose an item of the open menu; a disabled one does nothing and leaves it open."""
    assert desktop.open_menu is not None
    menu = window.menus[desktop.open_menu[1]]
    item = menu.items[index]
    if not item.startswith("-"):
        desktop.choices.append(f"{menu.title} > {item}")
        desktop.open_menu = None


def opened(desktop: Desktop) -> tuple[Window, Menu] | None:
    """Return the window and the menu that is open."""
    if desktop.open_menu is None:
        return None
    window = desktop.window(desktop.open_menu[0])
    assert window is not None
    return window, window.menus[desktop.open_menu[1]]


def menu_key(desktop: Desktop, key: str) -> None:
    """Let the open menu have a key."""
    found = opened(desktop)
    assert found is not None
    assert desktop.open_menu is not None
    window, menu = found
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
