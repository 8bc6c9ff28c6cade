# mypy: disable-error-code="import-not-found,import-untyped"
"""A full-screen panel of big buttons, check boxes, entries and labels: ``panel DESCRIPTION``, in the container.

The description is JSON, or the path of a JSON file::

    {"state": "~/state.json", "columns": 2, "font_px": 24, "background": "#202020",
     "items": [{"kind": "label", "text": "Save the file"},
               {"kind": "button", "id": "save", "text": "Save", "color": "#c03030"},
               {"kind": "check", "id": "wifi", "text": "Wi-Fi", "checked": false},
               {"kind": "entry", "id": "name", "text": ""},
               {"kind": "space"}]}

Items fill a grid of equal cells, row by row; an item may take more with ``"wide": 2``. In place of ``items``, ``pages``
is a list of such lists, and a button with ``"next": true`` turns the page. The state file holds, from the start and
after every change, ``{"clicked": [ids of buttons, in order], "checked": {id: bool}, "entries": {id: text}}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gi

gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, Gtk  # noqa: E402

KINDS = ("label", "button", "check", "entry", "space")


class PanelState:
    """The user's actions, stored in a file that is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The user's actions, by the ids of the items.
        self.clicked: list[str] = []
        self.checked: dict[str, bool] = {}
        self.entries: dict[str, str] = {}

    def click(self, name: str) -> None:
        self.clicked.append(name)
        self.save()

    def check(self, name: str, on: bool) -> None:
        self.checked[name] = on
        self.save()

    def enter(self, name: str, text: str) -> None:
        self.entries[name] = text
        self.save()

    def save(self) -> None:
        new = self._path.with_suffix(".new")
        state = {"clicked": self.clicked, "checked": self.checked, "entries": self.entries}
        new.write_text(json.dumps(state) + "\n")
        new.replace(self._path)


def build(description: dict[str, Any], state: PanelState) -> Any:
    """Return the window."""
    window = Gtk.Window(title=str(description.get("title", "Panel")))
    window.set_decorated(False)
    window.fullscreen()
    stack = Gtk.Stack()
    for number, items in enumerate(description.get("pages") or [description["items"]]):
        stack.add_named(_grid(items, int(description.get("columns", 1)), state, stack), str(number))
    window.add(stack)
    window.connect("destroy", Gtk.main_quit)
    return window


def _grid(items: list[dict[str, Any]], columns: int, state: PanelState, stack: Any) -> Any:
    """Return a page."""
    grid = Gtk.Grid(row_homogeneous=True, column_homogeneous=True, row_spacing=6, column_spacing=6, margin=6)
    place = 0
    for item in items:
        wide = min(int(item.get("wide", 1)), columns)
        if place % columns + wide > columns:
            place += columns - place % columns
        widget = _widget(item, state)
        if item.get("next"):
            widget.connect("clicked", lambda _: _turn(stack))
        widget.set_hexpand(True)
        widget.set_vexpand(True)
        grid.attach(widget, place % columns, place // columns, wide, 1)
        place += wide
    return grid


def _turn(stack: Any) -> None:
    """Show the next page; the last one stays."""
    pages = stack.get_children()
    number = pages.index(stack.get_visible_child()) + 1
    stack.set_visible_child(pages[min(number, len(pages) - 1)])


def _widget(item: dict[str, Any], state: PanelState) -> Any:
    kind, name, text = item.get("kind"), str(item.get("id", "")), str(item.get("text", ""))
    if kind == "button":
        widget = Gtk.Button(label=text)
        widget.connect("clicked", lambda _: state.click(name))
    elif kind == "check":
        state.checked[name] = bool(item.get("checked", False))
        widget = Gtk.CheckButton(label=text, active=state.checked[name], halign=Gtk.Align.FILL)
        widget.connect("toggled", lambda box: state.check(name, box.get_active()))
    elif kind == "entry":
        state.entries[name] = text
        # A width of its own would make a small screen's grid wider than the screen.
        widget = Gtk.Entry(text=text, width_chars=1)
        widget.connect("changed", lambda entry: state.enter(name, entry.get_text()))
    elif kind in ("label", "space"):
        widget = Gtk.Label(label=text, wrap=True)
    else:
        raise SystemExit(f"kind of an item is {kind!r}, wanted one of {', '.join(KINDS)}")
    if "color" in item:
        _style(widget, f"* {{ background: {item['color']}; }}")
    return widget


def _style(widget: Any, css: str) -> None:
    provider = Gtk.CssProvider()
    provider.load_from_data(css.encode())
    widget.get_style_context().add_provider(provider, Gtk.STYLE_PROVIDER_PRIORITY_USER)


def _style_all(description: dict[str, Any]) -> None:
    size = int(description.get("font_px", 24))
    # No fading and no shadows: a click is seen in the next frame, and frames are easy to tell apart.
    paper, ink = description.get("background", "#e8e8e8"), description.get("foreground", "#101010")
    box = f"min-width: {size}px; min-height: {size}px; -gtk-icon-source: none"
    css = f"""
    * {{ font-size: {size}px; transition: none; text-shadow: none; box-shadow: none; min-width: 0; min-height: 0; }}
    window {{ background: {paper}; color: {ink}; }}
    button {{ background: #d0d0d0; color: #101010; padding: 2px; }}
    check {{ {box}; background: #ffffff; border: 2px solid #101010; }}
    check:checked {{ background: #2060d0; }}
    """
    provider = Gtk.CssProvider()
    provider.load_from_data(css.encode())
    Gtk.StyleContext.add_provider_for_screen(Gdk.Screen.get_default(), provider, Gtk.STYLE_PROVIDER_PRIORITY_USER)


def main() -> None:
    """Show the panel until its window is closed."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: panel DESCRIPTION, JSON or the path of a JSON file")
    given = sys.argv[1]
    description = json.loads(given if given.lstrip().startswith("{") else Path(given).expanduser().read_text())
    state = PanelState(Path(str(description.get("state", "~/state.json"))).expanduser())
    _style_all(description)
    window = build(description, state)
    state.save()
    window.show_all()
    Gtk.main()


if __name__ == "__main__":
    main()
