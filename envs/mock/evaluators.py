"""Scores: pure functions of the desktop's state, found by the names that a task's evaluator gives.

As in OSWorld: a *getter* (``result.type``) takes a value out of the state, ``expected`` gives a rule, and a
*metric* (``func``) compares. With several metrics, ``conj`` "and" is 0 as soon as one is 0 and else their mean;
"or" is 1 as soon as one is 1 and else their maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dartsim.core.errors import ScoreUnavailable
from dartsim.envs.mock.commands import values_of
from dartsim.envs.mock.desktop import VirtualDesktop


@dataclass(frozen=True, slots=True)
class EvaluatorState:
    """A desktop's state as an evaluator reads it.

    Attributes:
        values: Of the widgets of open windows, by ``window.widget``.
        windows: Ids of open windows, bottom to top.
        closed: Ids of windows in the order they were closed.
        choices: Menu items chosen, as ``Menu > Item``.
        pressed: Buttons pressed, as ``window.widget``.
        submitted: Values of the widgets of submitted windows, by window id.
        clipboard: Text that was copied.
    """

    values: Mapping[str, Any]
    windows: tuple[str, ...]
    closed: tuple[str, ...]
    choices: tuple[str, ...]
    pressed: tuple[str, ...]
    submitted: Mapping[str, Mapping[str, Any]]
    clipboard: str


def read_state(desktop: VirtualDesktop) -> EvaluatorState:
    """Return a desktop's state."""
    return EvaluatorState(
        values={
            f"{window.id}.{name}": value for window in desktop.windows for name, value in values_of(window).items()
        },
        windows=tuple(window.id for window in desktop.windows),
        closed=tuple(desktop.closed),
        choices=tuple(desktop.choices),
        pressed=tuple(desktop.pressed),
        submitted={name: dict(values) for name, values in desktop.submitted.items()},
        clipboard=desktop.clipboard,
    )


Parameters = Mapping[str, Any]
Getter = Callable[[EvaluatorState, Parameters], Any]
Metric = Callable[[Any, Any, Parameters], float]

GETTERS: dict[str, Getter] = {
    "mock_values": lambda state, wanted: [state.values.get(name) for name in wanted["widgets"]],
    "mock_submitted": lambda state, wanted: state.submitted.get(wanted["window"]),
    "mock_closed": lambda state, wanted: [name for name in state.closed if name in wanted["windows"]],
    "mock_choices": lambda state, wanted: list(state.choices),
    "mock_pressed": lambda state, wanted: [name for name in state.pressed if name.startswith(f"{wanted['window']}.")],
    "mock_clipboard": lambda state, wanted: state.clipboard,
}
"""Type of a getter -> what it takes out of the state."""


def exact_match(result: Any, expected: Any, options: Parameters) -> float:
    """Score 1 if the values are equal."""
    return float(result == expected)


def match_fields(result: Any, expected: Any, options: Parameters) -> float:
    """Score 1 if a dictionary has all the expected entries; others do not matter."""
    return float(result is not None and all(result.get(key) == value for key, value in expected.items()))


def same_items(result: Any, expected: Any, options: Parameters) -> float:
    """Score 1 if two lists have the same items, in whatever order."""
    return float(sorted(map(str, result)) == sorted(map(str, expected)))


METRICS: dict[str, Metric] = {each.__name__: each for each in (exact_match, match_fields, same_items)}
"""Name of a metric -> what compares."""


def evaluate(evaluator: Mapping[str, Any] | None, state: EvaluatorState) -> float:
    """Return the score of a state, in [0, 1].

    Raises:
        ScoreUnavailable: If there is no evaluator, or it names what is not registered, or breaks on the state.
    """
    if evaluator is None:
        raise ScoreUnavailable("the task has no evaluator; the mock desktop cannot score it")
    func = evaluator.get("func")
    if not isinstance(func, list):
        return _one(func, evaluator.get("result"), evaluator.get("expected"), evaluator.get("options"), state)
    blank = [None] * len(func)
    results, expected, options = (evaluator.get(name) or blank for name in ("result", "expected", "options"))
    scores = [_one(*each, state) for each in zip(func, results, expected, options, strict=True)]
    if evaluator.get("conj", "and") == "or":
        return max(scores)
    return 0.0 if 0.0 in scores else sum(scores) / len(scores)


def _one(func: Any, result: Any, expected: Any, options: Any, state: EvaluatorState) -> float:
    metric = METRICS.get(func)
    if metric is None:
        raise ScoreUnavailable(f"found the metric {func!r}, the mock desktop knows {', '.join(METRICS)}")
    kind = result.get("type") if isinstance(result, Mapping) else None
    if kind not in GETTERS:
        raise ScoreUnavailable(f"found the getter {kind!r}, the mock desktop knows {', '.join(GETTERS)}")
    try:
        return float(metric(GETTERS[kind](state, result), _rule(expected), options or {}))
    except (KeyError, TypeError, AttributeError) as exc:
        raise ScoreUnavailable(f"the evaluator {func} of {kind} failed: {exc!r}") from exc


def _rule(expected: Any) -> Any:
    if not isinstance(expected, Mapping) or expected.get("type") != "rule":
        raise ScoreUnavailable(f"found the expectation {expected!r}, wanted one of type 'rule'")
    return expected["rules"]["expected"]
