# mypy: disable-error-code="import-not-found,import-untyped"
"""The AT-SPI tree as XML in OSWorld's form, and a terminal's text.

Run as ``python -m dartsim.real.desktop.server.accessibility``; ``--terminal`` prints a focused terminal's text as JSON.
Every tree gets its own interpreter, because AT-SPI's cache in a process goes stale between two trees, and because an
application that hangs must not hang the server.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element, register_namespace, tostring

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402

MAX_DEPTH = 50
MAX_WIDTH = 1024
_ANSWER_MILLISECONDS = 1_000
_START_MILLISECONDS = 5_000
_NAMESPACES = {
    "st": "state",
    "attr": "attributes",
    "cp": "component",
    "doc": "document",
    "docattr": "document/attributes",
    "txt": "text",
    "val": "value",
    "act": "action",
}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_NAMES = re.compile(r"[^\w.-]")
# Getters of tasks look for Chrome; Chromium's name is in its code.
_APPLICATIONS = {"Chromium": "Google Chrome"}
# AT-SPI's placeholders for anything but text.
_PLACEHOLDERS = str.maketrans("", "", "￼�")


def uri(prefix: str) -> str:
    """Return the namespace in which OSWorld's agents look up attributes."""
    return f"https://accessibility.ubuntu.example.org/ns/{_NAMESPACES[prefix]}"


def _key(prefix: str, name: str) -> str:
    return f"{{{uri(prefix)}}}{_NOT_IN_NAMES.sub('-', name)}"


def tree() -> Element:
    """Return the whole desktop's tree."""
    for prefix in _NAMESPACES:
        register_namespace(prefix, uri(prefix))
    root = Element("desktop-frame")
    root.extend(_element(application, 1) for application in _children(Atspi.get_desktop(0)))
    return root


def terminal_text() -> str | None:
    """Return the text of the focused terminal of an active window, or None."""
    for application in _children(Atspi.get_desktop(0)):
        for frame in _children(application):
            if _has(frame, Atspi.StateType.ACTIVE):
                terminal = next((node for node in _within(frame) if _is_focused_terminal(node)), None)
                if terminal is not None:
                    return _text(terminal).rstrip()
    return None


def _is_focused_terminal(node: Any) -> bool:
    return node.get_role() == Atspi.Role.TERMINAL and _has(node, Atspi.StateType.FOCUSED)


def _has(node: Any, state: Any) -> bool:
    return bool(node.get_state_set().contains(state))


def _within(node: Any, depth: int = 0) -> Iterator[Any]:
    yield node
    if depth < MAX_DEPTH:
        for child in _children(node):
            yield from _within(child, depth + 1)


def _children(node: Any) -> Iterator[Any]:
    """Yield a node's available children; one that vanished or hangs is left out."""
    try:
        count = min(node.get_child_count(), MAX_WIDTH)
    except GLib.Error:
        return
    for place in range(count):
        try:
            child = node.get_child_at_index(place)
        except GLib.Error:
            continue
        if child is not None:
            yield child


def _element(node: Any, depth: int, in_sheet: bool = False) -> Element:
    try:
        role = node.get_role_name().strip() or "unknown"
        attributes = _attributes(node)
        text = _text(node)
    except GLib.Error:
        return Element("unknown", {"name": ""})
    if role == "application":
        attributes["name"] = _APPLICATIONS.get(attributes["name"], attributes["name"])
    element = Element(_NOT_IN_NAMES.sub("-", role), attributes)
    element.text = text or None
    if depth < MAX_DEPTH:
        in_sheet = in_sheet or role == "document spreadsheet"
        children = _shown_cells(node) if in_sheet and role == "table" else _children(node)
        element.extend(_element(child, depth + 1, in_sheet) for child in children)
    return element


def _attributes(node: Any) -> dict[str, str]:
    attributes = {"name": node.get_name() or ""}
    states = {state.value_nick.replace("-", "_") for state in node.get_state_set().get_states()}
    attributes |= {_key("st", state): "true" for state in sorted(states)}
    attributes |= {_key("attr", name): value for name, value in (node.get_attributes() or {}).items() if name}
    if {"visible", "showing"} <= states and (component := node.get_component_iface()) is not None:
        box = component.get_extents(Atspi.CoordType.SCREEN)
        attributes[_key("cp", "screencoord")] = str((box.x, box.y))
        attributes[_key("cp", "size")] = str((box.width, box.height))
    if node.get_image_iface() is not None:
        attributes["image"] = "true"
    if node.get_selection_iface() is not None:
        attributes["selection"] = "true"
    attributes |= _value(node) | _actions(node)
    return {name: _NOT_XML.sub("", value) for name, value in attributes.items()}


def _value(node: Any) -> dict[str, str]:
    value = node.get_value_iface()
    if value is None:
        return {}
    parts = {
        "value": value.get_current_value,
        "min": value.get_minimum_value,
        "max": value.get_maximum_value,
        "step": value.get_minimum_increment,
    }
    return {_key("val", name): str(read()) for name, read in parts.items()}


def _actions(node: Any) -> dict[str, str]:
    action = node.get_action_iface()
    attributes: dict[str, str] = {}
    for place in range(action.get_n_actions() if action is not None else 0):
        name = action.get_action_name(place)
        attributes[_key("act", f"{name}_desc")] = action.get_action_description(place) or ""
        attributes[_key("act", f"{name}_kb")] = action.get_key_binding(place) or ""
    return attributes


def _text(node: Any) -> str:
    text = node.get_text_iface()
    if text is None:
        return ""
    written = text.get_text(0, text.get_character_count()) or ""
    return _NOT_XML.sub("", written.translate(_PLACEHOLDERS))


def _shown_cells(table: Any) -> Iterator[Any]:
    """Yield a spreadsheet's visible cells, row by row; the sheet itself has billions."""
    grid, component = table.get_table_iface(), table.get_component_iface()
    if grid is None or component is None:
        return
    box = component.get_extents(Atspi.CoordType.SCREEN)
    middle = component.get_accessible_at_point(box.x + box.width // 2, box.y + box.height // 2, Atspi.CoordType.SCREEN)
    place = middle.get_index_in_parent() if middle is not None else 0
    row, column = grid.get_row_at_index(place), grid.get_column_at_index(place)

    def showing(row_index: int, column_index: int) -> bool:
        if row_index < 0 or column_index < 0:
            return False
        cell = grid.get_accessible_at(row_index, column_index)
        return cell is not None and _has(cell, Atspi.StateType.SHOWING)

    top, left = row, column
    while showing(top - 1, column):
        top -= 1
    while showing(row, left - 1):
        left -= 1
    while showing(top, left):
        right = left
        while showing(top, right):
            yield grid.get_accessible_at(top, right)
            right += 1
        top += 1


def main() -> None:
    """Print the tree as XML, or with ``--terminal`` the terminal's text as JSON."""
    Atspi.init()
    Atspi.set_timeout(_ANSWER_MILLISECONDS, _START_MILLISECONDS)
    answer = terminal_text() if "--terminal" in sys.argv else tostring(tree(), encoding="unicode")
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
