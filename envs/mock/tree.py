"""The accessibility tree: what the screen shows, as XML in the form that OSWorld's agents read.

Boxes are ``cp:screencoord`` and ``cp:size``, states ``st:…``, as in OSWorld's trees for Ubuntu. Only
what is at least partly visible is listed. ``st:showing`` is ``false`` if a window, a dialog or a menu covers the center
of its box; ``st:enabled`` is ``false`` for what is disabled, and for everything that waits for a modal dialog.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from dartsim.envs.mock.desktop import Target, VirtualDesktop
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.widgets import Button, CheckBox, Label, ListBox, MockWindow, Placed, Slider, TextField, Widget

_NS = "https://accessibility.ubuntu.example.org/ns"
_HEAD = f'<desktop-frame name="main" xmlns:st="{_NS}/state" xmlns:cp="{_NS}/component" xmlns:val="{_NS}/value">'

# What XML 1.0 cannot hold, not even escaped.
_UNFIT = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")


def accessibility_tree(desktop: VirtualDesktop) -> str:
    """Return the tree."""
    parts = [_HEAD]
    for window in desktop.windows:
        parts += _window(desktop, window)
    parts.append("</desktop-frame>")
    return "".join(parts)


def _text(value: object) -> str:
    return escape(str(value).translate(_UNFIT), {'"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})


def _node(role: str, node_id: str, name: str, box: Box, **states: object) -> str:
    """Return an open tag without its closing bracket."""
    attributes = "".join(
        f' {key.replace("_", ":", 1)}="{str(value).lower() if isinstance(value, bool) else _text(value)}"'
        for key, value in states.items()
    )
    return (
        f'<{role} id="{_text(node_id)}" name="{_text(name)}" cp:screencoord="({box.left}, {box.top})" '
        f'cp:size="({box.width}, {box.height})"{attributes}'
    )


def _shows(desktop: VirtualDesktop, box: Box, target: Target) -> bool:
    return not box.empty and desktop.target(*box.center) == target


def _window(desktop: VirtualDesktop, window: MockWindow) -> list[str]:
    active = window is desktop.top
    reachable = active or not desktop.modal
    box = window.box.meet(desktop.layout.screen)
    parts = [
        _node("frame", window.id, window.title, box, st_active=active, st_modal=window.modal, st_visible=True) + ">"
    ]
    if not window.bare:
        close = desktop.layout.close(window).meet(desktop.layout.screen)
        if not close.empty:
            showing = _shows(desktop, close, Target("close", window))
            node_id = f"{window.id}.close"
            parts.append(_leaf("push-button", node_id, "Close", close, showing, enabled=reachable))
    parts += _menus(desktop, window, reachable)
    for index, placed, shown in desktop.shown_widgets(window):
        if placed.widget.label:
            parts.append(_label(desktop, window, placed))
        showing = _shows(desktop, shown, Target("widget", window, index))
        parts.append(_widget(window, placed, shown, showing, reachable, active and index == window.focus))
    parts.append("</frame>")
    return parts


def _leaf(role: str, node_id: str, name: str, box: Box, showing: bool, *, enabled: bool) -> str:
    return _node(role, node_id, name, box, st_visible=True, st_showing=showing, st_enabled=enabled) + "/>"


def _menus(desktop: VirtualDesktop, window: MockWindow, reachable: bool) -> list[str]:
    layout, parts = desktop.layout, []
    for index, (menu, box) in enumerate(zip(window.menus, layout.menu_titles(window), strict=True)):
        visible = box.meet(layout.screen)
        opened = desktop.open_menu is not None and desktop.open_menu[:2] == (window.id, index)
        if not visible.empty:
            showing = _shows(desktop, visible, Target("menu_title", window, index))
            node_id = f"{window.id}.menu.{index}"
            parts.append(_leaf("menu", node_id, menu.title, visible, showing, enabled=reachable))
        if opened:
            for i, (item, place) in enumerate(zip(menu.items, layout.menu_items(window, index), strict=True)):
                showing = _shows(desktop, place.meet(layout.screen), Target("menu_item", window, i))
                name, enabled = item.removeprefix("-"), not item.startswith("-")
                node_id = f"{window.id}.item.{i}"
                place = place.meet(layout.screen)
                parts.append(_leaf("menu-item", node_id, name, place, showing, enabled=enabled))
    return parts


def _widget(window: MockWindow, placed: Placed, shown: Box, showing: bool, reachable: bool, focused: bool) -> str:
    widget = placed.widget
    states: dict[str, object] = {
        "st_visible": True,
        "st_showing": showing,
        "st_enabled": widget.enabled and reachable,
        "st_focused": focused,
    }
    states.update(_more_states(widget))
    name = widget.label or widget.text or widget.id
    opened = _node(widget.role, f"{window.id}.{widget.id}", name, shown, **states)
    inside = _inside(widget)
    return f"{opened}>{inside}</{widget.role}>" if inside else f"{opened}/>"


def _label(desktop: VirtualDesktop, window: MockWindow, placed: Placed) -> str:
    """Return the node of the label to the left of a widget."""
    box = placed.label.moved(0, -window.scroll).meet(desktop.layout.viewport(window))
    name = placed.widget.label
    return _node("label", f"{window.id}.{placed.widget.id}.label", name, box, st_visible=True) + "/>"


def _more_states(widget: Widget) -> dict[str, object]:
    match widget:
        case CheckBox():
            return {"st_checked": widget.checked}
        case Slider():
            return {"val_value": widget.at, "val_min": widget.minimum, "val_max": widget.maximum}
        case Button() if widget.color:
            return {"color": widget.color}
    return {}


def _inside(widget: Widget) -> str:
    match widget:
        case TextField() | Label():
            return _text(widget.text)
        case ListBox():
            shown = range(widget.scroll, min(widget.scroll + widget.visible, len(widget.items)))
            return "".join(
                f'<list-item name="{_text(widget.items[i])}" st:selected="{str(i == widget.selected).lower()}"/>'
                for i in shown
            )
    return ""
