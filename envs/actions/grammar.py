"""Shared by all grammars: their interface, the names of keys, and a reader of Python calls, which are never run.

Every function that reads raises ``MalformedAction`` if the text breaks the grammar.
"""

from __future__ import annotations

import ast
import math
import string
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dartsim.envs.actions.model import (
    BUTTONS,
    MAX_ACTIONS,
    MAX_CLICKS,
    MAX_PIXEL,
    MAX_TYPED,
    Action,
    Drag,
    Move,
    Scroll,
    TypeText,
)


class MalformedAction(ValueError):
    """A text that is not an action of the grammar; none of it is carried out."""


class UnknownName(MalformedAction):
    """A text of the right form with an unknown action, key or direction."""


class Inexpressible(ValueError):
    """An action that the grammar cannot write."""


@dataclass(frozen=True)
class ActionGrammar(ABC):
    """A way to write actions, for a screen of a given size.

    For all actions that the grammar can write, ``parse(format(actions)) == snapped(actions)``, where snapping moves
    positions to the nearest ones that can be written (needed only by ``compact``).
    """

    width: int
    height: int

    name: ClassVar[str]
    call_user_waits = 0
    """How often in an attempt ``CallUser`` waits; see ``read``."""

    @abstractmethod
    def parse(self, text: str) -> tuple[Action, ...]:
        """Read a text.

        Raises:
            MalformedAction: If it breaks the grammar anywhere.
        """

    @abstractmethod
    def format(self, actions: Sequence[Action]) -> str:
        """Write actions in the grammar's normal form.

        Raises:
            Inexpressible: If the grammar cannot write one of them.
        """

    def snap(self, x: int, y: int) -> tuple[int, int]:
        """Return the writable position nearest to a pixel."""
        return x, y


def with_starts(actions: Sequence[Action]) -> Iterator[tuple[Action, Move | None]]:
    """Yield actions with their start: a ``Move`` before a ``Drag`` or a ``Scroll`` is not an action of its own."""
    start: Move | None = None
    for action in actions:
        if start is not None and not isinstance(action, (Drag, Scroll)):
            yield start, None
            start = None
        if isinstance(action, Move):
            start = action
        else:
            yield action, start
            start = None
    if start is not None:
        yield start, None


def check_limits(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions of one text as a tuple; refuse those that a desktop cannot carry out.

    These are too many actions, and texts that are too long or that no keyboard or clipboard can produce.
    """
    if len(actions) > MAX_ACTIONS:
        raise MalformedAction(f"found {len(actions)} actions in one text, wanted at most {MAX_ACTIONS}")
    actions = [TypeText(join_surrogates(each.text)) if isinstance(each, TypeText) else each for each in actions]
    texts = [each.text for each in actions if isinstance(each, TypeText)]
    if sum(map(len, texts)) > MAX_TYPED:
        raise MalformedAction(f"found {sum(map(len, texts))} characters to type, wanted at most {MAX_TYPED}")
    if not all(map(can_type, texts)):
        raise MalformedAction("found a control character, or half of a surrogate pair, in what is typed")
    return tuple(actions)


def join_surrogates(text: str) -> str:
    """Return a text with each surrogate pair joined into its character; unpaired halves stay."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


TYPED_CONTROLS = "\n\r\t\b"
"""Control characters on a keyboard: enter (two forms), tab and backspace."""


def can_type(text: str) -> bool:
    """Whether a desktop can type each character: no other control character, and no unpaired surrogate."""
    if text.isascii() and text.isprintable():
        return True
    return "\ufffd" not in text and all(
        char in TYPED_CONTROLS or unicodedata.category(char) not in ("Cc", "Cs") for char in text
    )


def as_text(text: Any, name: str) -> str:
    """Return a text, its surrogate pairs joined; anything else is malformed."""
    if not isinstance(text, str):
        raise MalformedAction(f"{name} wants a text, found {type(text).__name__}")
    return join_surrogates(text)


_NAMED = [
    *("enter", "tab", "space", "backspace", "delete", "esc", "insert"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *("shift", "ctrl", "alt", "win", "capslock", "numlock", "scrolllock", "printscreen", "pause", "menu"),
    *("help", "select", "execute", "add", "subtract", "multiply", "divide", "decimal", "separator"),
    *(f"num{i}" for i in range(10)),
    *(f"f{i}" for i in range(1, 25)),
]
_CHARACTERS = set(string.ascii_letters + string.digits + string.punctuation)

KEYS = tuple(sorted({*_NAMED, *_CHARACTERS}))
"""Every key by its normal name; a character is its key, pressed with shift if needed: ``A``, ``!``."""

_ALIASES = {
    alias: name
    for name, aliases in {
        "enter": ("return", "\n", "\r"),
        "tab": ("\t",),
        "space": (" ",),
        "backspace": ("\b",),
        "esc": ("escape",),
        "delete": ("del",),
        "insert": ("ins",),
        "pageup": ("pgup", "page_up", "page up"),
        "pagedown": ("pgdn", "page_down", "page down"),
        "ctrl": ("control", "ctrlleft", "ctrlright"),
        "shift": ("shiftleft", "shiftright"),
        "alt": ("altleft", "altright", "option"),
        "win": ("winleft", "winright", "super", "meta", "command", "cmd"),
        **{arrow: (f"arrow{arrow}",) for arrow in ("up", "down", "left", "right")},
        "printscreen": ("prtsc", "prtscr", "prntscrn", "print"),
        "menu": ("apps",),
    }.items()
    for alias in aliases
}
_KNOWN = frozenset(KEYS)


def key_name(name: Any) -> str:
    """Return the normal name of a key. As in pyautogui, only names longer than a character ignore case."""
    if isinstance(name, str):
        spelled = name if len(name) == 1 else name.lower()
        normal = _ALIASES.get(spelled, spelled)
        if normal in _KNOWN:
            return normal
    raise UnknownName(f"found no key {str(name)[:40]!r}, wanted a name such as 'enter', 'ctrl' or 'a'")


def hotkey_names(names: Any) -> tuple[str, ...]:
    """Return the normal names of keys that are pressed together."""
    keys = tuple(key_name(name) for name in names)
    if not 1 <= len(keys) <= 5:
        raise UnknownName(f"found {len(keys)} keys pressed together, wanted 1 to 5")
    return keys


MAX_CHARACTERS = 20_000
"""Longest text that is parsed as code."""


def statements(code: str) -> list[ast.stmt]:
    """Return the statements of a piece of Python."""
    if len(code) > MAX_CHARACTERS:
        raise MalformedAction(f"found {len(code)} characters, wanted at most {MAX_CHARACTERS}")
    try:
        body = _parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise MalformedAction(f"wanted Python, found {code[:60]!r} ({type(exc).__name__})") from None
    if not body:
        raise MalformedAction("found no statement")
    return body


def _parse(code: str) -> list[ast.stmt]:
    if "\\" not in code and not any(char.isdigit() for char in code):
        return ast.parse(code).body
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # the text may contain "\d" or "1if"
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(code).body


def dotted(node: ast.expr) -> str:
    """Return ``a.b`` for an expression of names; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def literal(node: ast.expr) -> Any:
    """Return a constant, a signed number, or a list or tuple of such."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
            return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [literal(element) for element in elements]
    raise MalformedAction(f"wanted a constant, found {type(node).__name__}")


def arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of its parameters."""
    if len(call.args) > len(names):
        raise MalformedAction(f"found {len(call.args)} arguments, wanted at most {len(names)}")
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        raise MalformedAction("found a starred argument")
    given = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in names or keyword.arg in given:
            raise MalformedAction(f"found the argument {keyword.arg!r}, wanted {', '.join(names)}, each once")
        given[keyword.arg] = keyword.value
    return given


def number(value: Any, what: str) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedAction(f"{what}: found {type(value).__name__}, wanted a number")
    if not abs(value) <= MAX_PIXEL:  # also refuses NaN
        raise MalformedAction(f"{what}: found a number beyond ±{MAX_PIXEL}")
    return float(value)


def whole(value: Any, what: str) -> int:
    """Return a number truncated to an integer."""
    return math.trunc(number(value, what))


def position(x: Any, y: Any) -> tuple[int, int] | None:
    """Return a position, or None if neither coordinate is given."""
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
