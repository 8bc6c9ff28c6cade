"""computer_13, OSWorld's dictionaries: ``{"action_type": "CLICK", "parameters": {"x": 12, "y": 34}}``.

Positions are pixels of the screen. Parameters may also stand beside the type. A JSON list holds several
actions, which is an extension: OSWorld takes one a turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import (
    ActionGrammar,
    Inexpressible,
    MalformedAction,
    button,
    can_type,
    clicks,
    hotkey_names,
    key_name,
    limited,
    position,
    whole,
)

Values = Mapping[str, Any]


def _place(values: Values) -> tuple[int, int]:
    place = position(values.get("x"), values.get("y"))
    if place is None:
        raise MalformedAction("found no position, wanted x and y")
    return place


def _click(values: Values, which: str | None = None, count: int | None = None) -> act.Action:
    x, y = position(values.get("x"), values.get("y")) or (None, None)
    return act.Click(x, y, which or button(values.get("button", "left")), count or clicks(values.get("num_clicks", 1)))


def _scroll(values: Values) -> act.Action:
    if "dx" not in values and "dy" not in values:
        raise MalformedAction("SCROLL: found neither dx nor dy")
    return act.Scroll(whole(values.get("dx", 0), "dx"), whole(values.get("dy", 0), "dy"))


def _typing(values: Values) -> act.Action:
    text = values.get("text")
    if not isinstance(text, str):
        raise MalformedAction(f"TYPING: found {type(text).__name__}, wanted a text")
    return act.TypeText(text)


def _hotkey(values: Values) -> act.Action:
    keys = values.get("keys")
    if not isinstance(keys, list):
        raise MalformedAction("HOTKEY: wanted a list of keys")
    return act.Hotkey(hotkey_names(keys))


_KINDS: dict[str, tuple[frozenset[str], Callable[[Values], act.Action]]] = {
    name: (frozenset(parameters.split()), read)
    for name, parameters, read in (
        ("MOVE_TO", "x y", lambda values: act.Move(*_place(values))),
        ("CLICK", "x y button num_clicks", _click),
        ("MOUSE_DOWN", "button", lambda values: act.Down(button(values.get("button", "left")))),
        ("MOUSE_UP", "button", lambda values: act.Up(button(values.get("button", "left")))),
        ("RIGHT_CLICK", "x y", lambda values: _click(values, "right", 1)),
        ("DOUBLE_CLICK", "x y", lambda values: _click(values, "left", 2)),
        ("DRAG_TO", "x y", lambda values: act.Drag(*_place(values))),
        ("SCROLL", "dx dy", _scroll),
        ("TYPING", "text", _typing),
        ("PRESS", "key", lambda values: act.Press(key_name(values.get("key")))),
        ("KEY_DOWN", "key", lambda values: act.KeyDown(key_name(values.get("key")))),
        ("KEY_UP", "key", lambda values: act.KeyUp(key_name(values.get("key")))),
        ("HOTKEY", "keys", _hotkey),
        ("WAIT", "", lambda values: act.Wait()),
        ("DONE", "", lambda values: act.Done()),
        ("FAIL", "", lambda values: act.Fail()),
    )
}
"""Type -> (its parameters, what it means)."""


@dataclass(frozen=True)
class Computer13(ActionGrammar):
    """The grammar; see the module."""

    name: ClassVar[str] = "computer_13"

    def parse(self, text: str | Mapping[str, Any]) -> tuple[act.Action, ...]:
        """Read a dictionary, or JSON of one or of a list of them, or a bare word such as ``WAIT``."""
        value: Any = text
        if isinstance(text, str):
            value = _json(text)
        if isinstance(value, list):
            if not value:
                raise MalformedAction("found an empty list")
            return limited([_action(each) for each in value])
        return limited([_action(value)])

    def format(self, actions: Sequence[act.Action]) -> str:
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


def _action(value: Any) -> act.Action:
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


def _written(action: act.Action) -> dict[str, Any]:
    kind, values = _parts(action)
    return {"action_type": kind, "parameters": values} if values else {"action_type": kind}


def _parts(action: act.Action) -> tuple[str, dict[str, Any]]:
    match action:
        case act.Click(None, None, which, count):
            return "CLICK", {"button": which, "num_clicks": count}
        case act.Click(x, y, "right", 1):
            return "RIGHT_CLICK", {"x": x, "y": y}
        case act.Click(x, y, "left", 2):
            return "DOUBLE_CLICK", {"x": x, "y": y}
        case act.Click(x, y, which, count):
            return "CLICK", {"x": x, "y": y, "button": which, "num_clicks": count}
        case act.Move(x, y):
            return "MOVE_TO", {"x": x, "y": y}
        case act.Drag(x, y, "left"):
            return "DRAG_TO", {"x": x, "y": y}
        case act.Down(which):
            return "MOUSE_DOWN", {"button": which}
        case act.Up(which):
            return "MOUSE_UP", {"button": which}
        case act.Scroll(dx, dy):
            return "SCROLL", {"dx": dx, "dy": dy}
        case act.TypeText(text) if can_type(text):
            return "TYPING", {"text": text}
        case act.Press(key):
            return "PRESS", {"key": key}
        case act.Hotkey(keys):
            return "HOTKEY", {"keys": list(keys)}
        case act.KeyDown(key):
            return "KEY_DOWN", {"key": key}
        case act.KeyUp(key):
            return "KEY_UP", {"key": key}
        case act.Wait():
            return "WAIT", {}
        case act.Done():
            return "DONE", {}
        case act.Fail():
            return "FAIL", {}
    raise Inexpressible(f"computer_13 cannot write {action}")
