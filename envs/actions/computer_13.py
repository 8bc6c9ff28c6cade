"""computer_13, OSWorld's dictionaries: ``{"action_type": "CLICK", "parameters": {"x": 12, "y": 34}}``; only read.

Positions are pixels of the screen. Parameters may also be at the top level, beside the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import (
    MalformedAction,
    button,
    check_limits,
    clicks,
    hotkey_names,
    key_name,
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
"""Type -> (its parameters, a function that returns the action)."""


def read_dictionary(value: Mapping[str, Any]) -> tuple[act.Action, ...]:
    """Return the single action of a dictionary.

    Raises:
        MalformedAction: If it is not an action.
    """
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
    return check_limits([read(values)])
