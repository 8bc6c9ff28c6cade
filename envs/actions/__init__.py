"""Action grammars: three ways to write the same mouse and keyboard actions, each with a parser and a formatter.

``model`` defines the actions; ``pyautogui``, ``ui_tars`` and ``compact`` are the grammars, which ``make_grammar``
creates by name; ``computer_13`` reads OSWorld's dictionaries. Coordinates of an action are always whole pixels of the
screen, from the upper left corner. Each grammar documents its own unit (thousandths, pixels of a resized picture, cells
of a grid).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dartsim.envs.actions.compact import Compact
from dartsim.envs.actions.computer_13 import read_dictionary
from dartsim.envs.actions.grammar import ActionGrammar, MalformedAction
from dartsim.envs.actions.model import Action, CallUser, Done, Fail, Wait
from dartsim.envs.actions.pyautogui import PyAutoGui
from dartsim.envs.actions.ui_tars import UiTars
from dartsim.envs.base import DONE, FAIL, WAIT
from dartsim.envs.mock.geometry import unit_of


def _compact(width: int, height: int, columns: int | None = None, rows: int | None = None) -> ActionGrammar:
    half = max(1, unit_of(width, height) // 2)
    return Compact(width, height, columns or -(-width // half), rows or -(-height // half))


GRAMMARS: dict[str, Callable[..., ActionGrammar]] = {
    "pyautogui": PyAutoGui,
    "ui_tars": UiTars,
    "ui_tars_absolute": lambda width, height, **options: UiTars(width, height, absolute=True, **options),
    "compact": _compact,
}
"""Name -> constructor, which takes the screen's width and height."""


def make_grammar(name: str, width: int, height: int, **options: Any) -> ActionGrammar:
    """Return a grammar for a screen.

    Raises:
        ValueError: If there is no such grammar.
    """
    if name not in GRAMMARS:
        raise ValueError(f"found no grammar {name!r}, wanted one of {', '.join(GRAMMARS)}")
    return GRAMMARS[name](width, height, **options)


_ENDINGS: dict[str, tuple[Action, ...]] = {WAIT: (Wait(),), DONE: (Done(),), FAIL: (Fail(),)}


def read(
    grammar: ActionGrammar, action: str | Mapping[str, Any], calls: Counter[str] | None = None
) -> tuple[Action, ...] | None:
    """Return the actions of a turn's text, or None if it is malformed.

    ``WAIT``, ``DONE``, ``FAIL`` and computer_13's dictionaries are understood in every grammar.

    Args:
        grammar: The grammar of the text.
        action: The text.
        calls: Counter of ``call_user`` in one attempt: such a turn waits as often as ``grammar.call_user_waits`` says,
            then fails. None: it fails immediately.
    """
    if isinstance(action, str) and action in _ENDINGS:
        return _ENDINGS[action]
    try:
        if isinstance(action, Mapping):
            return read_dictionary(action)
        actions = grammar.parse(action)
    except MalformedAction:
        return None
    if not any(isinstance(each, CallUser) for each in actions):
        return actions
    calls = Counter() if calls is None else calls
    calls["call_user"] += 1
    return (Wait(),) if calls["call_user"] <= grammar.call_user_waits else (Fail(),)


def ending(actions: Iterable[Action]) -> str | None:
    """Return ``DONE`` or ``FAIL`` if one of the actions is ``Done`` or ``Fail``; else None."""
    last = next((action for action in actions if isinstance(action, Done | Fail)), None)
    return None if last is None else DONE if isinstance(last, Done) else FAIL
