"""Metrics of tables: CSV files, and spreadsheets by rules (``openpyxl``). Names and meaning are OSWorld's.

``compare_table`` knows these rules here: sheet names, data, printed text, fuzzy ranges, values of cells, frozen
panes, zoom, properties of rows and columns. Charts, pivot tables, styles, filters and validation are left to the
``desktop-env`` evaluator.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from dartsim.real.osworld.metrics.match import knows, likeness, matches, record_matches
from dartsim.real.osworld.metrics.sheets import Book, cells_of, same_grid
from dartsim.real.osworld.metrics.text import read

Rule = Mapping[str, Any]
Result = str | None

UNREADABLE = (OSError, ValueError, KeyError, BadZipFile, EOFError, TypeError, IndexError, SyntaxError)
"""What openpyxl raises on a file that is no spreadsheet."""


def compare_csv(result: Result, expected: str | list[str], *, strict: bool = True, ignore_case: bool = False) -> float:
    """Whether a file has the lines of another, or of one of several."""

    def lines(text: str) -> list[str]:
        found = [line if strict else line.strip() for line in text.splitlines()]
        return [line.lower() for line in found] if ignore_case else found

    text = _text(result)
    golds = [expected] if isinstance(expected, str) else expected
    return float(text is not None and any(lines(text) == lines(_text(gold) or "") for gold in golds))


def check_csv(result: Result, rules: Rule) -> float:
    """Whether a table has a row like each of ``expect`` and none like one of ``unexpect``."""
    text = read(result)
    if text is None:
        return 0.0
    rows = list(csv.DictReader(io.StringIO(text)))
    wanted = all(any(record_matches(rule, row) for row in rows) for rule in rules.get("expect", ()))
    return float(wanted and not any(record_matches(rule, row) for row in rows for rule in rules.get("unexpect", ())))


def compare_table(result: Result, expected: str | None = None, *, rules: Sequence[Rule]) -> float:
    """Whether a spreadsheet obeys every rule, most of them against another spreadsheet."""
    if result is None or not Path(result).is_file():
        return 0.0
    found, gold = Book(result), None if expected is None else Book(expected)
    try:
        _ = found.names, found.layout
    except UNREADABLE:
        return 0.0
    return float(all(RULES[rule["type"]](rule, found, gold) for rule in rules))


def supports_table(options: Mapping[str, Any]) -> bool:
    """Whether ``compare_table`` knows all rules of its options."""
    return set(options) == {"rules"} and all(_supports(rule) for rule in options["rules"])


def _supports(rule: Rule) -> bool:
    if rule["type"] == "check_cell":
        return all(name == "value" and knows(each) for name, each in rule["props"].items())
    return rule["type"] in RULES and (rule["type"] != "zoom" or knows(rule))


def _sheet(index: int | str, found: Book, gold: Book | None) -> tuple[Book, str | None]:
    """Return the book and the sheet that a rule means: 0, ``RI0``, ``RNSheet1`` of the result, ``EI0``, ``EN…``."""
    if isinstance(index, int):
        index = f"RI{index}"
    book = {"R": found, "E": gold}.get(index[:1])
    if book is None or index[1:2] not in ("I", "N"):
        raise ValueError(f"found the sheet {index!r}, wanted RI or RN of the result, EI or EN of the expected book")
    names = book.names
    if index[1] == "N":
        return book, index[2:] if index[2:] in names else None
    number = int(index[2:])
    return book, names[number] if number < len(names) else None


def _both(look: Callable[[Book, str], Any], rule: Rule, found: Book, gold: Book | None) -> tuple[Any, Any]:
    """Return what is seen in the rule's two sheets; None for one that the agent's book does not have.

    Raises:
        ValueError: If the expected book has no such sheet: that is the task's fault.
    """
    seen = []
    for name in ("sheet_idx0", "sheet_idx1"):
        book, sheet = _sheet(rule[name], found, gold)
        if sheet is None and book is not found:
            raise ValueError(f"the expected book has no sheet {rule[name]!r}, only {book.names}")
        seen.append(None if sheet is None else look(book, sheet))
    return seen[0], seen[1]


def _names(rule: Rule, found: Book, gold: Book | None) -> bool:
    return gold is not None and found.names == gold.names


def _data(rule: Rule, found: Book, gold: Book | None) -> bool:
    one, other = _both(Book.grid, rule, found, gold)
    return one is not None and other is not None and same_grid(one, other, digits=rule.get("precision", 4))


def _print(rule: Rule, found: Book, gold: Book | None) -> bool:
    one, other = _both(Book.printed, rule, found, gold)
    if one is None or other is None:
        return False
    return bool(_lower(one) == _lower(other)) if rule.get("ignore_case") else bool(one == other)


def _lower(lines: list[str]) -> list[str]:
    return [line.lower() for line in lines]


def _fuzzy(rule: Rule, found: Book, gold: Book | None) -> bool:
    for each in rule["rules"]:
        for place in cells_of(each["range"]):
            one, other = _both(partial(Book.cell, place=place), rule, found, gold)
            if not _alike(_trim(str(one), each), _trim(str(other), each), each):
                return False
    return True


def _trim(text: str, rule: Rule) -> str:
    for old, new in rule.get("normalization", ()):
        text = text.replace(old, new)
    if "trim_leadings" in rule:
        text = text.lstrip(rule["trim_leadings"])
    if "trim_trailings" in rule:
        text = text.rstrip(rule["trim_trailings"])
    text = "".join(character for character in text if character not in rule.get("ignore_chars", ""))
    return text.lower() if rule.get("ignore_case") else text


def _alike(one: str, other: str, rule: Rule) -> bool:
    match rule["type"]:
        case "includes":
            return other in one
        case "included_by":
            return one in other
        case "fuzzy_match":
            return 100 * likeness(one, other) >= float(rule.get("threshold", 85.0))
        case "exact_match":
            return one == other
    raise ValueError(f"found the rule {rule['type']!r}, wanted includes, included_by, fuzzy_match or exact_match")


def _cell(rule: Rule, found: Book, gold: Book | None) -> bool:
    book, sheet = _sheet(rule["sheet_idx"], found, gold)
    if sheet is None:
        return False
    return all(matches(book.cell(sheet, rule["coordinate"]), each) for each in rule["props"].values())


def _freeze(rule: Rule, found: Book, gold: Book | None) -> bool:
    one, other = _both(lambda book, sheet: [book.layout[sheet].freeze_panes], rule, found, gold)
    return one is not None and bool(one == other)


def _zoom(rule: Rule, found: Book, gold: Book | None) -> bool:
    book, sheet = _sheet(rule["sheet_idx"], found, gold)
    return sheet is not None and matches(book.layout[sheet].sheet_view.zoomScale or 100.0, rule)


def _lines(kind: str) -> Callable[[Rule, Book, Book | None], bool]:
    def check(rule: Rule, found: Book, gold: Book | None) -> bool:
        def look(book: Book, sheet: str) -> dict[Any, dict[str, Any]]:
            lines = getattr(book.layout[sheet], f"{kind}_dimensions")
            return {key: {name: getattr(line, name) for name in rule.get("props", ())} for key, line in lines.items()}

        one, other = _both(look, rule, found, gold)
        return bool((one or {}) == (other or {}))

    return check


RULES: Mapping[str, Callable[[Rule, Book, Book | None], bool]] = {
    "sheet_name": _names,
    "sheet_data": _data,
    "sheet_print": _print,
    "sheet_fuzzy": _fuzzy,
    "check_cell": _cell,
    "freeze": _freeze,
    "zoom": _zoom,
    "row_props": _lines("row"),
    "col_props": _lines("column"),
}


def _text(path: Result) -> str | None:
    try:
        data = b"" if path is None else Path(path).read_bytes()
    except OSError:
        return None
    try:
        return None if path is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
