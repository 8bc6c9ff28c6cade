"""The grammars by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dartsim.envs.actions.compact import Compact
from dartsim.envs.actions.computer_13 import Computer13
from dartsim.envs.actions.grammar import Grammar
from dartsim.envs.actions.pyautogui import PyAutoGui
from dartsim.envs.actions.ui_tars import UiTars
from dartsim.envs.mock.geometry import unit_of


def _compact(width: int, height: int, columns: int | None = None, rows: int | None = None) -> Grammar:
    half = max(1, unit_of(width, height) // 2)
    return Compact(width, height, columns or -(-width // half), rows or -(-height // half))


GRAMMARS: dict[str, Callable[..., Grammar]] = {
    "pyautogui": PyAutoGui,
    "computer_13": Computer13,
    "ui_tars": UiTars,
    "ui_tars_absolute": lambda width, height, **options: UiTars(width, height, absolute=True, **options),
    "compact": _compact,
}
"""Name -> what makes it from the screen's width and height."""


def make_grammar(name: str, width: int, height: int, **options: Any) -> Grammar:
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
