"""Metrics of values: texts, lists and objects that getters return. Names and meaning are OSWorld's."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from dartsim.real.osworld.metrics.match import likeness

Rules = Mapping[str, Any]


def exact_match(result: Any, rules: Rules) -> float:
    """Whether the result equals ``expected``."""
    return float(result == rules["expected"])


def match_in_list(result: Any, rules: Rules) -> float:
    """Whether the result is one of ``expected``."""
    return float(result in rules["expected"])


def is_in_list(result: Any, rules: Rules) -> float:
    """Whether ``expected`` is in the result, a list or a text."""
    return float(result is not None and rules["expected"] in result)


def literal_match(result: Any, expected: Any, *, type: str = "str", ignore_case: bool = False) -> float:
    """Whether two values are the same text, or two lists the same texts."""

    def text(value: Any) -> str:
        return str(value).lower() if ignore_case else str(value)

    if type == "str":
        return float(text(result) == text(expected))
    if type != "list":
        raise ValueError(f"found the type {type!r}, wanted 'str' or 'list'")
    if not isinstance(result, (list, tuple)) or not isinstance(expected, (list, tuple)):
        return 0.0
    return float([text(value) for value in result] == [text(value) for value in expected])


def fuzzy_match(result: Any, rules: Rules) -> float:
    """Return how alike the result and ``expected`` are."""
    return likeness(result, rules["expected"]) if isinstance(result, str) else 0.0


def check_include_exclude(result: Any, rules: Rules) -> float:
    """Whether the result holds every text of ``include`` and none of ``exclude``."""
    if result is None:
        return 0.0
    holds = all(text in result for text in rules.get("include", ()))
    return float(holds and not any(text in result for text in rules.get("exclude", ())))


def is_extension_installed(result: Any, rules: Rules) -> float:
    """Whether ``expected`` is in a listing (``contain``), or is not (``not_contain``)."""
    if result is None:
        return 0.0
    wanted = {"contain": True, "not_contain": False}[rules["type"]]
    return float((rules["expected"] in result) == wanted)


def is_in_vm_clickboard(rules: Rules, result: Any) -> float:
    """Whether a text holds ``expected``, one text or all of a list. OSWorld passes the rule first."""
    expected = rules["expected"]
    texts = expected if isinstance(expected, list) else [expected]
    return float(result is not None and all(text in result for text in texts))


def is_expected_url_pattern_match(result: Any, rules: Rules) -> float:
    """Whether every regular expression of ``expected`` is found in a URL."""
    url = result.get("url") if isinstance(result, Mapping) else result
    return float(isinstance(url, str) and bool(url) and all(re.search(each, url) for each in rules["expected"]))


def check_direct_json_object(result: Any, rules: Rules) -> float:
    """Whether an object has the fields of ``expected`` with these values.

    With ``expect_in_result`` a wanted text is looked for in the text found, and one of a wanted list in what was
    found. ``expected`` may say ``ignore_list_order``.
    """
    if isinstance(result, str):
        try:
            result = json.loads(result.strip().replace("'", '"'))
        except ValueError:
            return 0.0
    expected = rules["expected"]
    if not isinstance(result, Mapping) or "__EVALUATION_FAILED__" in expected.values():
        return 0.0
    if rules.get("expect_in_result", False):
        return float(all(_within(wanted, result.get(key)) for key, wanted in expected.items()))
    unordered = bool(expected.get("ignore_list_order", False))
    return float(all(_same(wanted, result.get(key), unordered) for key, wanted in expected.items()))


def _within(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, list):
        have = [found] if isinstance(found, str) else found
        return isinstance(have, list) and any(each in have for each in wanted)
    return isinstance(wanted, str) and isinstance(found, str) and wanted in found


def _same(wanted: Any, found: Any, unordered: bool) -> bool:
    if not unordered:
        return bool(wanted == found)
    try:
        return bool(sorted(wanted) == sorted(found))
    except TypeError:
        return False


def check_gnome_favorite_apps(result: Any, rules: Rules) -> float:
    """Whether a list, as GNOME's settings write it, has the applications of ``expected`` in any order."""
    try:
        apps = ast.literal_eval(result)
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        return 0.0
    expected = rules["expected"]
    return float(isinstance(apps, list) and len(apps) == len(expected) and set(map(str, apps)) == set(expected))


def is_utc_0(result: Any) -> float:
    """Whether ``timedatectl`` says that the time zone is UTC."""
    lines = result.split("\n") if isinstance(result, str) else []
    return float(len(lines) > 3 and lines[3].endswith("+0000)"))


def check_text_enlarged(result: Any) -> float:
    """Whether a factor is larger than 1."""
    try:
        return float(float(result) > 1.0)
    except (TypeError, ValueError):
        return 0.0


def check_moved_jpgs(result: Any, rules: Rules) -> float:
    """Whether a folder holds the files of ``expected`` and no others."""
    if not isinstance(result, Mapping):
        return 0.0
    names = [child["name"] for child in result.get("children", ())]
    return float(len(names) == len(rules["expected"]) and set(names) == set(rules["expected"]))


def is_vlc_fullscreen(result: Any, expected: Any) -> float:
    """Whether a window is as large as the screen."""
    if not isinstance(result, Mapping) or not isinstance(expected, Mapping):
        return 0.0
    return float(all(result[side] == expected[side] for side in ("width", "height")))
