"""Scores: pure functions of the desktop's state, selected by the names in a task's evaluator.

As in OSWorld, a *getter* (``result.type``) reads a value from the state, ``expected`` gives a rule, and a
*metric* (``func``) compares. With several metrics, ``conj`` "and" is 0 if any is 0, otherwise their mean;
"or" is 1 if any is 1, otherwise their maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dartsim.core.errors import ScoreUnavailable
from dartsim.envs.mock.desktop import VirtualDesktop

Parameters = Mapping[str, Any]
Getter = Callable[[VirtualDesktop, Parameters], Any]
Metric = Callable[[Any, Any, Parameters], float]

GETTERS: dict[str, Getter] = {
    "mock_pressed": lambda desktop, wanted: [n for n in desktop.pressed if n.startswith(f"{wanted['window']}.")],
    "mock_pages": lambda desktop, wanted: [_page(desktop, name) for name in wanted["windows"]],
}
"""Type of a getter -> function that reads the value from the desktop."""


def _page(desktop: VirtualDesktop, window_id: str) -> int | None:
    """Return the page that a window shows, or None if it is not open."""
    window = desktop.window(window_id)
    return None if window is None else window.page


def exact_match(result: Any, expected: Any, options: Parameters) -> float:
    """Score 1 if the values are equal."""
    return float(result == expected)


METRICS: dict[str, Metric] = {"exact_match": exact_match}
"""Name of a metric -> function that compares."""


def evaluate(evaluator: Mapping[str, Any] | None, desktop: VirtualDesktop) -> float:
    """Return the score of a desktop's state, in [0, 1].

    Raises:
        ScoreUnavailable: If there is no evaluator, it names an unknown function, or it fails on the state.
    """
    if evaluator is None:
        raise ScoreUnavailable("the task has no evaluator; the mock desktop cannot score it")
    func = evaluator.get("func")
    if not isinstance(func, list):
        return _one(func, evaluator.get("result"), evaluator.get("expected"), evaluator.get("options"), desktop)
    blank = [None] * len(func)
    results, expected, options = (evaluator.get(name) or blank for name in ("result", "expected", "options"))
    scores = [_one(*each, desktop) for each in zip(func, results, expected, options, strict=True)]
    if evaluator.get("conj", "and") == "or":
        return max(scores)
    return 0.0 if 0.0 in scores else sum(scores) / len(scores)


def _one(func: Any, result: Any, expected: Any, options: Any, desktop: VirtualDesktop) -> float:
    metric = METRICS.get(func)
    if metric is None:
        raise ScoreUnavailable(f"found the metric {func!r}, the mock desktop knows {', '.join(METRICS)}")
    kind = result.get("type") if isinstance(result, Mapping) else None
    if kind not in GETTERS:
        raise ScoreUnavailable(f"found the getter {kind!r}, the mock desktop knows {', '.join(GETTERS)}")
    try:
        return float(metric(GETTERS[kind](desktop, result), _rule(expected), options or {}))
    except (KeyError, TypeError, AttributeError) as exc:
        raise ScoreUnavailable(f"the evaluator {func} of {kind} failed: {exc!r}") from exc


def _rule(expected: Any) -> Any:
    if not isinstance(expected, Mapping) or expected.get("type") != "rule":
        raise ScoreUnavailable(f"found the expectation {expected!r}, wanted one of type 'rule'")
    return expected["rules"]["expected"]
