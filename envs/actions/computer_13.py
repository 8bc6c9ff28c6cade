"""computer_13, OSWorld's dictionaries: ``{"action_type": "CLICK", "parameters": {"x": 12, "y": 34}}``.

Positions are pixels of the screen. Parameters may also stand beside the type. A JSON list holds several
actions, which is an extension: OSWorld takes one a turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dartsim.envs.actions.grammar import (
    ActionGrammar,
    Inexpressible,
    MalformedAction,
    button,
    clicks,
    hotkey_names,
    key_name,
    limited,
    position,
    whole,
)
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

Values = Mapping[str, Any]


def _place(values: Values) -> tuple[int, int]:
    place = position(values.get("x"), values.get("y"))
    if place is None:
        raise MalformedAction("found no position, wanted x and y")
    return place


def _click(values: Values, which: str | None = None, count: int | None = None) -> Action:
    x, y = position(values.get("x"), values.get("y")) or (None, None)
    return Click(x, y, which or button(values.get("button", "left")), count or clicks(values.get("num_clicks", 1)))


def _scroll(values: Values) -> Action:
    if "dx" not in values and "dy" not in values:
        raise MalformedAction("SCROLL: found neither dx nor dy")
    return Scroll(whole(values.get("dx", 0), "dx"), whole(values.get("dy", 0), "dy"))


def _typing(values: Values) -> Action:
    text = values.get("text")
    if not isinstance(text, str):
        raise MalformedAction(f"TYPING: found {type(text).__name__}, wanted a text")
    return TypeText(text)


def _hotkey(values: Values) -> Action:
    keys = values.get("keys")
    if not isinstance(keys, list):
        raise MalformedAction("HOTKEY: wanted a list of keys")
    return Hotkey(hotkey_names(keys))


_KINDS: dict[str, tuple[frozenset[str], Callable[[Values], Action]]] = {
    name: (frozenset(parameters.split()), read)
    for name, parameters, read in (
        ("MOVE_TO", "x y", lambda values: Move(*_place(values))),
        ("CLICK", "x y button num_clicks", _click),
        ("MOUSE_DOWN", "button", lambda values: Down(button(values.get("button", "left")))),
        ("MOUSE_UP", "button", lambda values: Up(button(values.get("button", "left")))),
        ("RIGHT_CLICK", "x y", lambda values: _click(values, "right", 1)),
        ("DOUBLE_CLICK", "x y", lambda values: _click(values, "left", 2)),
        ("DRAG_TO", "x y", lambda values: Drag(*_place(values))),
        ("SCROLL", "dx dy", _scroll),
        ("TYPING", "text", _typing),
        ("PRESS", "key", lambda values: Press(key_name(values.get("key")))),
        ("KEY_DOWN", "key", lambda values: KeyDown(key_name(values.get("key")))),
        ("KEY_UP", "key", lambda values: KeyUp(key_name(values.get("key")))),
        ("HOTKEY", "keys", _hotkey),
        ("WAIT", "", lambda values: Wait()),
        ("DONE", "", lambda values: Done()),
        ("FAIL", "", lambda values: Fail()),
    )
}
"""Type -> (its parameters, what it means)."""


@dataclass(frozen=True)
class Computer13(ActionGrammar):
    """The grammar; see the module."""

    name: ClassVar[str] = "computer_13"

    def parse(self, text: str | Mapping[str, Any]) -> tuple[Action, ...]:
        """Read a dictionary, or JSON of one or of a list of them, or a bare word such as ``WAIT``."""
        value: Any = text
        if isinstance(text, str):
            value = _json(text)
        if isinstance(value, list):
            if not value:
                raise MalformedAction("found an empty list")
            return limited([_action(each) for each in value])
        return (_action(value),)

    def format(self, actions: Sequence[Action]) -> str:
        """Write JSON: an object, or a list of objects where the actions are not exactly one."""
        written = [_written(action) for action in actions]
        return json.dumps(written[0] if len(written) == 1 else written)


def _json(text: str) -> Any:
    if text.strip() in ("WAIT", "DONE", "FAIL"):
        return {"action_type": text.strip()}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedAction(f"wanted JSON, found {text[:60]!r}") from None


def _action(value: Any) -> Action:
    if isinstance(value, str):
        value = {"action_type": value}
    if not isinstance(value, Mapping):
        raise MalformedAction(f"wanted an object, found {type(value).__name__}")
    kind = value.get("action_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise MalformedAction(f"action_type: found {str(kind)[:40]!r}, wanted one of {', '.join(_KINDS)}")
    known, read = _KINDS[kind]
    nested = value.get("parameters", {})
    if not isinstance(nested, Mapping):
        raise MalformedAction(f"parameters: wanted an object, found {type(nested).__name__}")
    beside = {key: each for key, each in value.items() if key not in ("action_type", "parameters")}
    values = {**beside, **nested}
    if not values.keys() <= known:
        raise MalformedAction(f"{kind}: found the parameters {sorted(map(str, values))}")
    return read(values)


def _written(action: Action) -> dict[str, Any]:
    kind, values = _parts(action)
    return {"action_type": kind, "parameters": values} if values else {"action_type": kind}


def _parts(action: Action) -> tuple[str, dict[str, Any]]:
    match action:
        case Click(None, None, which, count):
            return "CLICK", {"button": which, "num_clicks": count}
        case Click(x, y, "right", 1):
            return "RIGHT_CLICK", {"x": x, "y": y}
        case Click(x, y, "left", 2):
            return "DOUBLE_CLICK", {"x": x, "y": y}
        case Click(x, y, which, count):
            return "CLICK", {"x": x, "y": y, "button": which, "num_clicks": count}
        case Move(x, y):
            return "MOVE_TO", {"x": x, "y": y}
        case Drag(x, y, "left"):
            return "DRAG_TO", {"x": x, "y": y}
        case Down(which):
            return "MOUSE_DOWN", {"button": which}
        case Up(which):
            return "MOUSE_UP", {"button": which}
        case Scroll(dx, dy):
            return "SCROLL", {"dx": dx, "dy": dy}
        case TypeText(text):
            return "TYPING", {"text": text}
        case Press(key):
            return "PRESS", {"key": key}
        case Hotkey(keys):
            return "HOTKEY", {"keys": list(keys)}
        case KeyDown(key):
            return "KEY_DOWN", {"key": key}
        case KeyUp(key):
            return "KEY_UP", {"key": key}
        case Wait():
            return "WAIT", {}
        case Done():
            return "DONE", {}
        case Fail():
            return "FAIL", {}
    raise Inexpressible(f"computer_13 cannot write {action}")
