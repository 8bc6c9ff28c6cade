"""The few metrics that the tasks of our own desktop need, where ``desktop-env`` is not installed.

Names and meaning are OSWorld's. A file that is missing or no text scores 0: the agent has left it so.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Rules = Mapping[str, Any]


def exact_match(result: Any, rules: Rules) -> float:
    """Whether the result equals ``expected``."""
    return float(result == rules["expected"])


def check_include_exclude(result: Any, rules: Rules) -> float:
    """Whether the result holds every text of ``include`` and none of ``exclude``."""
    if result is None:
        return 0.0
    holds = all(text in result for text in rules.get("include", ()))
    return float(holds and not any(text in result for text in rules.get("exclude", ())))


def compare_text_file(
    result: str | None, expected: str, *, ignore_blanks: bool = False, ignore_case: bool = False
) -> float:
    """Whether two files hold the same text."""
    text = _read(result)
    if text is None:
        return 0.0

    def normal(text: str) -> str:
        text = re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip()) if ignore_blanks else text
        return text.lower() if ignore_case else text

    return float(normal(text) == normal(Path(expected).read_text(encoding="utf-8")))


def file_contains(result: str | None, rules: Rules) -> float:
    """Whether a file holds every text of ``expected``."""
    text = _read(result)
    return float(text is not None and all(wanted in text for wanted in rules["expected"]))


def check_list(result: str | None, rules: Rules) -> float:
    """Whether each expression of ``expect`` is found in some line, and none of ``unexpect`` in any."""
    text = _read(result)
    if text is None:
        return 0.0
    lines = [line + "\n" for line in text.split("\n")]
    if text.endswith("\n") or not text:
        lines.pop()
    else:
        lines[-1] = lines[-1][:-1]

    def somewhere(expression: str) -> bool:
        return any(re.search(expression, line) for line in lines)

    wanted = all(somewhere(expression) for expression in rules.get("expect", ()))
    return float(wanted and not any(somewhere(expression) for expression in rules.get("unexpect", ())))


def check_moved_jpgs(result: Any, rules: Rules) -> float:
    """Whether a folder holds the files of ``expected`` and no others."""
    if result is None:
        return 0.0
    names = [child["name"] for child in result["children"]]
    return float(len(names) == len(rules["expected"]) and set(names) == set(rules["expected"]))


METRICS: Mapping[str, Callable[..., float]] = {
    function.__name__: function
    for function in (
        check_include_exclude,
        check_list,
        check_moved_jpgs,
        compare_text_file,
        exact_match,
        file_contains,
    )
}
OPTIONS = {"compare_text_file": ["ignore_blanks", "ignore_case"]}


class OwnFunctions:
    """Our metrics; the getters that they need are the driver's."""

    desktop_error = not_offered = ()

    def facts(self) -> dict[str, Any]:
        return {
            "scorer": "dartsim 1",
            "python": platform.python_version(),
            "metrics": {name: [] for name in METRICS},
            "options": {name: OPTIONS.get(name, []) for name in METRICS},
            "getters": {},
        }

    def metric(self, name: str) -> Callable[..., float]:
        if name not in METRICS:
            raise ModuleNotFoundError(f"the metric {name} is desktop-env's")
        return METRICS[name]

    def get(self, name: str, config: dict[str, Any], desktop: dict[str, Any]) -> Any:
        raise ModuleNotFoundError(f"the getter {name} is desktop-env's")


def _read(path: str | None) -> str | None:
    """Return a file's text, None if it is missing or no text."""
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
