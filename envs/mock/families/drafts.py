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


def expect(func: str, getter: Spec, expected: Any) -> Spec:
    """Return an evaluator."""
    return {"func": func, "result": getter, "expected": {"type": "rule", "rules": {"expected": expected}}}


def pick(rng: np.random.Generator, items: Sequence[str], count: int) -> list[str]:
    """Return distinct random items."""
    return [items[i] for i in rng.permutation(len(items))[:count]]


def one(rng: np.random.Generator, items: Sequence[str]) -> str:
    """Return a random item."""
    return items[int(rng.integers(len(items)))]


def rows_of(cells: Sequence[Spec], across: int) -> list[list[Spec]]:
    """Return the cells in rows of ``across``."""
    return [list(cells[i : i + across]) for i in range(0, len(cells), across)]
