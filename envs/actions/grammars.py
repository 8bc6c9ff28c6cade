"""The action grammars by name, and what the text of a turn means on every desktop, whatever its grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dartsim.envs.actions.compact import Compact
from dartsim.envs.actions.computer_13 import Computer13
from dartsim.envs.actions.grammar import ActionGrammar, MalformedAction
from dartsim.envs.actions.model import Action, Done, Fail, Wait
from dartsim.envs.actions.pyautogui import PyAutoGui
from dartsim.envs.actions.ui_tars import UiTars
from dartsim.envs.base import DONE, FAIL, WAIT
from dartsim.envs.mock.geometry import unit_of


def _compact(width: int, height: int, columns: int | None = None, rows: int | None = None) -> ActionGrammar:
    half = max(1, unit_of(width, height) // 2)
    return Compact(width, height, columns or -(-width // half), rows or -(-height // half))


GRAMMARS: dict[str, Callable[..., ActionGrammar]] = {
    "pyautogui": PyAutoGui,
    "computer_13": Computer13,
    "ui_tars": UiTars,
    "ui_tars_absolute": lambda width, height, **options: UiTars(width, height, absolute=True, **options),
    "compact": _compact,
}
"""Name -> what makes it from the screen's width and height."""


def make_grammar(name: str, width: int, height: int, **options: Any) -> ActionGrammar:
    """Return a grammar for a screen.

    Args:
        name: One of ``GRAMMARS``.
        width: Of the screen, pixels.
        height: Of the screen, pixels.
        options: ``columns`` and ``rows`` of ``compact``; ``min_pixels`` of ``ui_tars_absolute``.

    Raises:
        ValueError: If there is no such grammar.
    """
    if name not in GRAMMARS:
        raise ValueError(f"found no grammar {name!r}, wanted one of {', '.join(GRAMMARS)}")
    return GRAMMARS[name](width, height, **options)


_WORDS: dict[str, tuple[Action, ...]] = {WAIT: (Wait(),), DONE: (Done(),), FAIL: (Fail(),)}


def read(grammar: ActionGrammar, action: str | Mapping[str, Any]) -> tuple[Action, ...] | None:
    """Return what an action means, or None if it is malformed.

    ``WAIT``, ``DONE``, ``FAIL`` and computer_13's dictionaries are understood whatever the grammar.
    """
    if isinstance(action, str) and action in _WORDS:
        return _WORDS[action]
    try:
        if isinstance(action, Mapping):
            return make_grammar("computer_13", grammar.width, grammar.height).parse(action)
        return grammar.parse(action)
    except MalformedAction:
        return None


def ending(actions: Iterable[Action]) -> str | None:
    """Return ``DONE`` or ``FAIL`` if one of the actions says so, whatever the grammar's own word is; else None."""
    said = next((each for each in actions if isinstance(each, Done | Fail)), None)
    return None if said is None else DONE if isinstance(said, Done) else FAIL
