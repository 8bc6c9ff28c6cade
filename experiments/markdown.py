"""Markdown for the pages: tables, and texts that are made from recorded figures when a page is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.common import Figures, recorded

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Head and rows of a table."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def short_commit(figures: Mapping[str, Any]) -> str:
    """Return the commit that figures were recorded at, as Markdown; ``none`` where none is known."""
    return f"`{(figures['commit']['id'] or 'none')[:12]}`"


def from_record(name: str, text: Callable[[Figures], str]) -> Callable[[], str]:
    """Return what makes a text from the figures recorded as ``name``; it raises FileNotFoundError if none are."""
    return lambda: text(recorded(name))


def table_from_record(name: str, rows: Callable[[Figures], Rows]) -> Callable[[], str]:
    """Return what makes a table from the figures recorded as ``name``; it raises FileNotFoundError if none are."""
    return lambda: table(*rows(recorded(name)))
