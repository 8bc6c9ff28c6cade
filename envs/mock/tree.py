"""The accessibility tree: what the screen shows, as XML in the form that OSWorld's agents read.

Boxes are ``cp:screencoord`` and ``cp:size``, states ``st:…``, as in OSWorld's trees for Ubuntu. Only elements
that are at least partly visible are listed. ``st:showing`` is ``false`` if a window covers the center of the box;
``st:enabled`` is ``false`` for everything that waits for a modal dialog.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from dartsim.envs.mock.desktop import Target, VirtualDesktop
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.widgets import Button, Label, MockWindow, PlacedWidget

_NS = "https://accessibility.ubuntu.example.org/ns"
_HEAD = f'<desktop-frame name="main" xmlns:st="{_NS}/state" xmlns:cp="{_NS}/component">'

# Characters that XML 1.0 cannot contain, not even escaped.
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
    for index, placed, shown in desktop.shown_widgets(window):
        showing = _shows(desktop, shown, Target("widget", window, index))
        parts.append(_widget(window, placed, shown, showing, reachable, active and index == window.focus))
    parts.append("</frame>")
    return parts


def _leaf(role: str, node_id: str, name: str, box: Box, showing: bool, *, enabled: bool) -> str:
    return _node(role, node_id, name, box, st_visible=True, st_showing=showing, st_enabled=enabled) + "/>"


def _widget(window: MockWindow, placed: PlacedWidget, shown: Box, showing: bool, reachable: bool, focused: bool) -> str:
    widget = placed.widget
    states: dict[str, object] = {
        "st_visible": True,
        "st_showing": showing,
        "st_enabled": reachable,
        "st_focused": focused,
    }
    if isinstance(widget, Button) and widget.color:
        states["color"] = widget.color
    opened = _node(widget.role, f"{window.id}.{widget.id}", widget.text or widget.id, shown, **states)
    return (
        f"{opened}>{_text(widget.text)}</{widget.role}>" if isinstance(widget, Label) and widget.text else f"{opened}/>"
    )
