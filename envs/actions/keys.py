"""Names of keys: pyautogui's, with one normal name for each key."""

from __future__ import annotations

import string
from typing import Any

from dartsim.envs.actions.grammar import MalformedAction

_NAMED = [
    *("enter", "tab", "space", "backspace", "delete", "esc", "insert"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *("shift", "ctrl", "alt", "win", "capslock", "numlock", "scrolllock", "printscreen", "pause", "menu"),
]
_FUNCTION = [f"f{i}" for i in range(1, 13)]
_CHARACTERS = set(string.ascii_lowercase + string.digits + string.punctuation)

MODIFIERS = frozenset({"shift", "ctrl", "alt", "win"})
KEYS = tuple(sorted({*_NAMED, *_FUNCTION, *_CHARACTERS}))
"""Every key, by its normal name; a character key is the character in lower case."""

_ALIASES = {
    "return": "enter",
    "\n": "enter",
    "\r": "enter",
    "\t": "tab",
    " ": "space",
    "escape": "esc",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "page_up": "pageup",
    "page up": "pageup",
    "pgdn": "pagedown",
    "page_down": "pagedown",
    "page down": "pagedown",
    "control": "ctrl",
    "ctrlleft": "ctrl",
    "ctrlright": "ctrl",
    "shiftleft": "shift",
    "shiftright": "shift",
    "altleft": "alt",
    "altright": "alt",
    "option": "alt",
    "winleft": "win",
    "winright": "win",
    "super": "win",
    "meta": "win",
    "command": "win",
    "cmd": "win",
    "arrowup": "up",
    "arrowdown": "down",
    "arrowleft": "left",
    "arrowright": "right",
    "prtsc": "printscreen",
    "apps": "menu",
}
_KNOWN = frozenset(KEYS)


def key_name(name: Any) -> str:
    """Return the normal name of a key.

    Raises:
        MalformedAction: If there is no such key.
    """
    if isinstance(name, str):
        lower = name.lower()
        normal = _ALIASES.get(lower, lower)
        if normal in _KNOWN:
            return normal
    raise MalformedAction(f"found no key {str(name)[:40]!r}, wanted a name such as 'enter', 'ctrl' or 'a'")


def hotkey_names(names: Any) -> tuple[str, ...]:
    """Return the normal names of keys that are pressed together.

    Raises:
        MalformedAction: If they are none, too many, or not keys.
    """
    found = tuple(key_name(name) for name in names)
    if not 1 <= len(found) <= 5:
        raise MalformedAction(f"found {len(found)} keys pressed together, wanted 1 to 5")
    return found
