"""Metrics of text files: as they are, line by line, as JSON, as settings. Names and meaning are OSWorld's.

A result that is missing or is not what it should be (no text, no JSON) scores 0: the agent has left it so.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from dartsim.real.osworld.metrics.match import matches, record_matches

QUERY_SECONDS = 20.0
"""Longest time of a query; one that takes longer finds nothing."""
MAX_LINES = 20_000
"""Of a text that is compared line by line: the time goes with the square."""

Rules = Mapping[str, Any]
Result = str | None


def read(result: Result) -> str | None:
    """Return a result's text, None if it is missing or no text."""
    if not result:
        return None
    try:
        return Path(result).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def compare_text_file(
    result: Result, expected: str, *, ignore_blanks: bool = False, ignore_case: bool = False
) -> float:
    """Whether two files hold the same text."""
    found = read(result)

    def normal(text: str) -> str:
        text = re.sub(r"\s+", " ", text.strip("\t\n\r ")) if ignore_blanks else text
        return text.lower() if ignore_case else text

    return float(found is not None and normal(found) == normal(_gold(expected)))


def diff_text_file(result: Result, expected: str) -> float:
    """Return the share of lines that two files have in common, by difflib."""
    found = read(result)
    if found is None:
        return 0.0
    lines, wanted = found.splitlines(), _gold(expected).splitlines()
    if len(lines) > max(MAX_LINES, 10 * len(wanted)):
        return 0.0  # at most a fifth of it would be in common
    return SequenceMatcher(a=lines, b=wanted).ratio()


def compare_config(result: Result, rules: Rules, *, containment_ok: bool = False) -> float:
    """Whether a file's text is ``expected``; with ``containment_ok`` JSON may have more fields than that."""
    found = read(result)
    if found is None:
        return 0.0
    if found == rules["expected"]:
        return 1.0
    if not containment_ok:
        return 0.0
    try:
        have, wanted = json.loads(found), json.loads(rules["expected"])
    except ValueError:
        return float(rules["expected"].strip() in found)
    if not isinstance(have, dict) or not isinstance(wanted, dict):
        return float(have == wanted)
    return float(record_matches(wanted, have))


def compare_answer(result: Any, rules: Rules) -> float:
    """Whether a text is ``expected``."""
    return float(bool(result) and result == rules["expected"])


def file_contains(result: Result, rules: Rules) -> float:
    """Whether a file holds every text of ``expected``."""
    found = read(result)
    return float(found is not None and all(text in found for text in rules["expected"]))


def check_list(result: Result, rules: Rules) -> float:
    """Whether each expression of ``expect`` is found in some line, and none of ``unexpect`` in any."""
    found = read(result)
    if found is None:
        return 0.0
    lines = found.splitlines(keepends=True)

    def somewhere(expression: str) -> bool:
        return any(re.search(expression, line) for line in lines)

    wanted = all(somewhere(each) for each in rules.get("expect", ()))
    return float(wanted and not any(somewhere(each) for each in rules.get("unexpect", ())))


def check_line_number(result: Result, rules: Rules) -> float:
    """Whether as many lines as ``expected`` hold a time of day."""
    found = read(result)
    if found is None:
        return 0.0
    times = sum(bool(re.search(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)", line)) for line in found.splitlines())
    return float(times == int(rules["expected"]))


def compare_terminal_and_txt(result: Result, expected: Any) -> float:
    """Whether a file holds what a terminal shows."""
    found = read(result)
    return float(bool(found) and bool(expected) and found == expected)


def compare_python_pure_text(result: Result, expected: str) -> float:
    """Whether two Python files are the same but for blank lines, trailing blanks, tabs and the lines before code."""
    found = read(result)
    return float(found is not None and _code(found) == _code(_gold(expected)))


_MAGIC = ("#!", "# -*- coding:", "# coding:", "# coding=")


def _code(text: str) -> list[str]:
    lines = text.splitlines()
    skipped = 0
    while skipped < min(3, len(lines)) and lines[skipped].strip().startswith(_MAGIC):
        skipped += 1
    return [line.expandtabs(4).rstrip() for line in lines[skipped:] if line.strip()]


def check_json(result: Result, rules: Rules, *, is_yaml: bool = False) -> float:
    """Whether values in a JSON file, found by their ``key`` path, are as ``expect`` and not as ``unexpect`` says."""
    if is_yaml:
        raise NotImplementedError("YAML is left to the desktop-env evaluator")
    found = _json(read(result))
    if found is None:
        return 0.0
    wanted = all(
        _at(found, rule["key"]) is not _NOTHING and matches(_at(found, rule["key"]), rule)
        for rule in rules.get("expect", ())
    )
    return float(wanted and not any(matches(_at(found, rule["key"], None), rule) for rule in rules.get("unexpect", ())))


_NOTHING = object()


def _at(value: Any, keys: Iterable[Any], default: Any = _NOTHING) -> Any:
    for key in keys:
        try:
            value = value[key]
        except (KeyError, TypeError, IndexError):
            return default
    return value


def check_json_settings(result: Result, rules: Rules) -> float:
    """Whether a JSON file has the fields of ``expected`` with these values."""
    found = _json(read(result))
    return float(isinstance(found, dict) and record_matches(rules["expected"], found))


def check_json_keybindings(result: Result, rules: Rules) -> float:
    """Whether a list of key bindings, perhaps under one line of comment, holds ``expected``."""
    text = read(result)
    for attempt in (text, text and text.partition("\n")[2]):
        found = _json(attempt)
        if isinstance(found, list):
            return float(rules["expected"] in found)
    return 0.0


def is_included_all_json_objects(expected: str, result: Result) -> float:
    """Whether a JSON file has all the fields of another. OSWorld passes the wanted one first."""
    found, wanted = _json(read(result)), _json(read(expected))
    return float(isinstance(found, dict) and isinstance(wanted, dict) and record_matches(wanted, found))


def run_sqlite3(result: Result, rules: Rules) -> float:
    """Return the number that ``sql`` gives from a database."""
    if not result or not Path(result).is_file():
        return 0.0
    # Read only, so that scoring twice gives the same.
    with contextlib.closing(sqlite3.connect(f"{Path(result).resolve().as_uri()}?mode=ro", uri=True)) as database:
        # The file may hold views, and a view may be endless.
        end = time.monotonic() + QUERY_SECONDS
        database.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        try:
            row = database.execute(rules["sql"]).fetchone()
        except sqlite3.DatabaseError:
            return 0.0
    return float((row or [0])[0] or 0)


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _gold(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
