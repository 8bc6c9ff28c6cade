"""Drafts of tasks, families of tasks, and helpers that make specs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Spec = dict[str, Any]
Goal = list[Any]
Draw = Callable[[np.random.Generator, int], "TaskDraft"]

MAX_DIFFICULTY = 10

WORDS = (
    *("apple", "bread", "cloud", "delta", "eagle", "flint", "grape", "heron"),
    *("ivory", "jelly", "koala", "lemon", "mango", "night", "olive", "pearl"),
    *("quilt", "river", "stone", "tulip", "uncle", "viola", "wheat", "xenon"),
    *("yacht", "zebra", "amber", "brook", "cedar", "dune", "ember", "fjord"),
)
"""Words that show in widgets; all short, all different."""
COLORS = ("red", "green", "blue", "yellow", "orange", "purple", "cyan", "pink", "brown")


@dataclass(slots=True)
class TaskDraft:
    """A task before it has an id."""

    instruction: str
    evaluator: Spec
    goals: list[Goal]
    config: list[Spec] = field(default_factory=list)
    auto_done: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of tasks."""

    name: str
    about: str
    draw: Draw
    feasible: bool = True


def widget(kind: str, name: str, **values: Any) -> Spec:
    """Return a widget's spec."""
    return {"kind": kind, "id": name, **values}


def window(step_type: str = "mock_window", **values: Any) -> Spec:
    """Return the step that opens a window."""
    return {"type": step_type, "parameters": values}


def background(rng: np.random.Generator, darkest: int = 150) -> Spec:
    """Return the step that gives the desktop a random light color."""
    return {"type": "mock_background", "parameters": {"color": rng.integers(darkest, 246, 3).tolist()}}


def somewhere(rng: np.random.Generator) -> list[float]:
    """Return a random place for a main window, large enough for small screens."""
    left, top = rng.uniform(0.0, 0.1, 2)
    across, down = rng.uniform(0.8, 0.9, 2)
    return [round(float(part), 3) for part in (left, top, across, down)]


def expect(func: str, getter: Spec, expected: Any) -> Spec:
    """Return an evaluator."""
    return {"func": func, "result": getter, "expected": {"type": "rule", "rules": {"expected": expected}}}


def expect_values(names: Sequence[str], values: Sequence[Any]) -> Spec:
    """Return an evaluator of the values of widgets in open windows."""
    return expect("exact_match", {"type": "mock_values", "widgets": list(names)}, list(values))


def expect_submitted(window_id: str, values: Spec) -> Spec:
    """Return an evaluator of what a window held when it was submitted."""
    return expect("match_fields", {"type": "mock_submitted", "window": window_id}, values)


def pick(rng: np.random.Generator, items: Sequence[str], count: int) -> list[str]:
    """Return random different items."""
    return [items[i] for i in rng.permutation(len(items))[:count]]


def one(rng: np.random.Generator, items: Sequence[str]) -> str:
    """Return a random item."""
    return items[int(rng.integers(len(items)))]


def phrase(rng: np.random.Generator, num_words: int) -> str:
    """Return different random words, separated by spaces."""
    return " ".join(pick(rng, WORDS, num_words))


def listed(items: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def rows_of(cells: Sequence[Spec], across: int) -> list[list[Spec]]:
    """Return the cells in rows of ``across``."""
    return [list(cells[i : i + across]) for i in range(0, len(cells), across)]
