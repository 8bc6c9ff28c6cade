"""The actions of all grammars: operations of a mouse and a keyboard.

Positions are whole pixels from the upper left corner. ``Drag`` and ``Scroll`` start where the pointer is, so a
drag from one place to another is a ``Move`` and a ``Drag``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

BUTTONS = ("left", "right", "middle")
MAX_CLICKS = 3
"""Clicks of one ``Click``: single, double, triple."""
MAX_ACTIONS = 256
"""Most actions in one text."""
MAX_TYPED = 20_000
"""Most characters typed by one text."""
MAX_PIXEL = 1_000_000
"""Largest coordinate and scroll distance, either sign."""


@dataclass(frozen=True, slots=True)
class Move:
    """Move the pointer."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Click:
    """Click 1 to 3 times; without a position, where the pointer is."""

    x: int | None = None
    y: int | None = None
    button: str = "left"
    count: int = 1


@dataclass(frozen=True, slots=True)
class Drag:
    """Press a button where the pointer is, move, and release it there."""

    x: int
    y: int
    button: str = "left"


@dataclass(frozen=True, slots=True)
class Down:
    """Press a mouse button and hold it."""

    button: str = "left"


@dataclass(frozen=True, slots=True)
class Up:
    """Release a mouse button."""

    button: str = "left"


@dataclass(frozen=True, slots=True)
class Scroll:
    """Turn the wheel where the pointer is, in notches; positive is up or right."""

    dx: int
    dy: int


@dataclass(frozen=True, slots=True)
class TypeText:
    r"""Type characters; ``\n`` and ``\r`` are the enter key, ``\t`` the tabulator and ``\b`` backspace."""

    text: str


@dataclass(frozen=True, slots=True)
class Press:
    """Press and release a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Hotkey:
    """Press keys together; the last one acts while the others are held."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyDown:
    """Press a key and hold it."""

    key: str


@dataclass(frozen=True, slots=True)
class KeyUp:
    """Release a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a moment."""


@dataclass(frozen=True, slots=True)
class Done:
    """Declare the task done."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Declare the task infeasible."""


@dataclass(frozen=True, slots=True)
class CallUser:
    """Ask the user, who never answers: it waits the first few times in an attempt, then it is ``Fail``."""


Action: TypeAlias = (
    Move
    | Click
    | Drag
    | Down
    | Up
    | Scroll
    | TypeText
    | Press
    | Hotkey
    | KeyDown
    | KeyUp
    | Wait
    | Done
    | Fail
    | CallUser
)
