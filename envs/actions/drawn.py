"""What a viewer draws on a screenshot for an action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dartsim.envs.actions import make_grammar
from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import MalformedAction

CLICKS = {1: "click", 2: "double_click", 3: "triple_click"}


def drawn_actions(text: str, grammar: str, options: dict[str, Any], width: int, height: int) -> list[dict[str, Any]]:
    """Return the operations of an action's text; none if it is malformed.

    Each has a ``kind`` (click, double_click, triple_click, move, drag, scroll, type, key, wait, done, fail, …) and,
    where they apply, ``points`` (shares of the picture's width and height), ``button``, ``keys``, ``text`` and
    ``amount`` (notches right and up).
    """
    try:
        actions = make_grammar(grammar, width, height, **options).parse(text)
    except (MalformedAction, ValueError):
        return []
    return _operations(actions, width, height)


def _operations(actions: Sequence[act.Action], width: int, height: int) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    pointer: list[list[float]] = []

    def at(x: int, y: int) -> list[float]:
        return [round(x / width, 4), round(y / height, 4)]

    for action in actions:
        match action:
            case act.Move(x, y):
                pointer = [at(x, y)]
                operations.append({"kind": "move", "points": pointer})
            case act.Click(x, y, button, count):
                if x is not None and y is not None:
                    pointer = [at(x, y)]
                operations.append({"kind": CLICKS[count], "points": pointer, "button": button})
            case act.Drag(x, y, button):
                operations.append({"kind": "drag", "points": [*pointer, at(x, y)], "button": button})
                pointer = [at(x, y)]
            case act.Scroll(dx, dy):
                operations.append({"kind": "scroll", "points": pointer, "amount": [dx, dy]})
            case act.TypeText(typed):
                operations.append({"kind": "type", "text": typed})
            case act.Press(key) | act.KeyDown(key) | act.KeyUp(key):
                operations.append({"kind": "key", "keys": [key]})
            case act.Hotkey(keys):
                operations.append({"kind": "key", "keys": list(keys)})
            case act.Down(button) | act.Up(button):
                operations.append({"kind": type(action).__name__.lower(), "points": pointer, "button": button})
            case _:
                operations.append({"kind": type(action).__name__.lower()})
    return operations
