"""Figures as JSON that people can read and compare: one object per line, floats with six significant digits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

DIGITS = 6
"""Significant digits of a float: more than any measurement here has."""

MAX_LINE = 120
"""An object of objects that is longer than this has one line per key, unless it is an element of a list."""


def json_text(value: Any) -> str:
    """Return a JSON document: top-level keys and elements of lists of objects each begin a line.

    Floats keep six significant digits; integers (seeds, counts) and strings (hashes) stay exact.

    Raises:
        ValueError: If a float is not finite.
    """
    return "".join(_lines(rounded(value), "", top=True)) + "\n"


def rounded(value: Any) -> Any:
    """Return a value with its floats rounded to six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def _lines(value: Any, indent: str, *, top: bool = False) -> Iterator[str]:
    inner = indent + " "
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    nested = isinstance(value, dict) and any(isinstance(part, (dict, list)) for part in value.values())
    if nested and (top or len(text) > MAX_LINE):
        yield "{"
        for number, (key, part) in enumerate(value.items()):
            yield f"{',' if number else ''}\n{inner}{json.dumps(key, ensure_ascii=False)}: "
            yield from _lines(part, inner)
        yield f"\n{indent}}}"
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        records = (json.dumps(part, ensure_ascii=False, allow_nan=False) for part in value)
        yield "[" + ",".join(f"\n{inner}{record}" for record in records) + f"\n{indent}]"
    else:
        yield text
