"""Reading Python calls with ``ast``, without ever running them, and the numbers in them: finite and sensible."""

from __future__ import annotations

import ast
import math
import warnings
from typing import Any

from dartsim.envs.actions.grammar import MalformedAction
from dartsim.envs.actions.model import BUTTONS, MAX_CLICKS, MAX_PIXEL

MAX_CHARACTERS = 20_000
"""Longest text that is parsed as code."""


def statements(code: str) -> list[ast.stmt]:
    """Return the statements of a piece of Python.

    Raises:
        MalformedAction: If it is not Python, is empty or is very long.
    """
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
        warnings.simplefilter("ignore", SyntaxWarning)  # the text's "\d" and "1if" are not our business
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(code).body


def dotted(node: ast.expr) -> str:
    """Return ``a.b`` for an expression of names; empty for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def literal(node: ast.expr) -> Any:
    """Return a constant, a signed number, or a list or tuple of such.

    Raises:
        MalformedAction: If the expression is anything else.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
            return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [literal(element) for element in elements]
    raise MalformedAction(f"wanted a constant, found {type(node).__name__}")


def arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of its parameters.

    Raises:
        MalformedAction: If there are too many, an unknown one, or one twice.
    """
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
