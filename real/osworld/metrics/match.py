"""How a value is held against a rule of a task file: ``{"method": …, "ref": …}``; and how alike two texts are."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "le": operator.le,
    "lt": operator.lt,
    "ge": operator.ge,
    "gt": operator.gt,
}
_FLAGS = {flag.name: flag for flag in re.RegexFlag} | {"I": re.I, "M": re.M, "S": re.S, "X": re.X, "A": re.A}


def matches(value: Any, rule: Mapping[str, Any]) -> bool:
    """Whether a value is as a rule says.

    Methods: ``eq ne le lt ge gt``; ``re`` with flags as in ``re.I.M``, searched; ``approx:0.01``; ``range.te``, where
    t is "less than" and e "or equal" for the lower and the upper end; ``str_list_eq`` and ``str_set_eq``, where the
    value is a text with commas. A value that cannot be compared does not match.

    Raises:
        ValueError: If the method is none of these.
    """
    method, ref = rule["method"], rule["ref"]
    if method in _COMPARE:
        return _safely(_COMPARE[method], value, ref)
    if method.split(".")[0] == "re":
        flags = re.RegexFlag(0)
        for name in method.split(".")[1:]:
            flags |= _FLAGS[name]
        return isinstance(value, str) and re.search(ref, value, flags) is not None
    if method.startswith("approx:"):
        return _safely(lambda found, wanted: abs(float(found) - wanted) <= float(method[7:]), value, ref)
    if re.fullmatch(r"range\.[te]{2}", method):
        low, high = (_COMPARE["l" + end] for end in method[6:])
        return _safely(low, ref[0], value) and _safely(high, value, ref[1])
    if method in ("str_list_eq", "str_set_eq"):
        kind: Callable[[Any], Any] = list if method == "str_list_eq" else set
        return isinstance(value, str) and bool(kind(value.strip("\"'").split(",")) == kind(ref))
    raise ValueError(f"found the method {method!r}, wanted one of {', '.join(METHODS)}")


METHODS = (*_COMPARE, "re", "approx:", "range.", "str_list_eq", "str_set_eq")


def knows(rule: Mapping[str, Any]) -> bool:
    """Whether ``matches`` knows the rule's method."""
    method = str(rule.get("method", ""))
    return method in METHODS or method.startswith(("re.", "approx:", "range."))


def record_matches(wanted: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a record has all the fields that are wanted, with these values."""
    return all(key in record and record[key] == value for key, value in wanted.items())


def likeness(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return how alike two texts are, in [0, 1]: twice their longest common subsequence over both lengths.

    It is what ``rapidfuzz.fuzz.ratio`` returns, divided by 100.
    Source: Hyyrö 2004, bit-parallel computation of the longest common subsequence.
    """
    if not one and not other:
        return 1.0
    places: dict[Any, int] = {}
    for number, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << number
    every = (1 << len(one)) - 1
    row = every
    for item in other:
        hits = row & places.get(item, 0)
        row = ((row + hits) | (row - hits)) & every
    return 2 * (len(one) - row.bit_count()) / (len(one) + len(other))


def _safely(compare: Callable[[Any, Any], bool], value: Any, ref: Any) -> bool:
    try:
        return bool(compare(value, ref))
    except (TypeError, ValueError):
        return False
