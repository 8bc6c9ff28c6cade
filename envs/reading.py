"""What the text of a turn means on every desktop: the common words, the grammar's actions, and whether they end it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dartsim.envs.actions import Action, Done, Fail, Grammar, MalformedAction, Wait, make_grammar
from dartsim.envs.base import DONE, FAIL, WAIT

_WORDS: dict[str, tuple[Action, ...]] = {WAIT: (Wait(),), DONE: (Done(),), FAIL: (Fail(),)}


def read(grammar: Grammar, action: str | Mapping[str, Any]) -> tuple[Action, ...] | None:
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
