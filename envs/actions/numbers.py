"""Numbers in actions: finite, of a sensible size, and cut to whole pixels as pyautogui does."""

from __future__ import annotations

import math
from typing import Any

from dartsim.envs.actions.grammar import MalformedAction
from dartsim.envs.actions.model import BUTTONS, MAX_CLICKS, MAX_PIXEL


def number(value: Any, what: str) -> float:
    """Return a finite number.

    Raises:
        MalformedAction: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedAction(f"{what}: found {type(value).__name__}, wanted a number")
    if not abs(value) <= MAX_PIXEL:  # also not a number
        raise MalformedAction(f"{what}: found a number beyond ±{MAX_PIXEL}")
    return float(value)


def whole(value: Any, what: str) -> int:
    """Return a number cut to a whole one."""
    return math.trunc(number(value, what))


def position(x: Any, y: Any) -> tuple[int, int] | None:
    """Return a position, or None if neither coordinate is given.

    Raises:
        MalformedAction: If only one is given, or one is no number.
    """
    if x is None and y is None:
        return None
    if isinstance(x, (tuple, list)) and y is None and len(x) == 2:
        x, y = x
    if x is None or y is None:
        raise MalformedAction("found one coordinate, wanted x and y")
    return whole(x, "x"), whole(y, "y")


def clicks(value: Any) -> int:
    """Return the count of a click."""
    count = whole(value, "clicks")
    if not 1 <= count <= MAX_CLICKS:
        raise MalformedAction(f"clicks: found {count}, wanted 1 to {MAX_CLICKS}")
    return count


def button(value: Any) -> str:
    """Return the normal name of a mouse button."""
    name = {"primary": "left", "secondary": "right"}.get(str(value), value)
    if name not in BUTTONS:
        raise MalformedAction(f"button: found {str(value)[:40]!r}, wanted one of {', '.join(BUTTONS)}")
    return str(name)
