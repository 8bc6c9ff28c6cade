"""Rewards are floats: two that are equal on paper may differ in their last digits, as 0.1 + 0.2 and 0.3 do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isclose

TOLERANCE = 1e-6
"""Largest difference, absolute and relative, between rewards that count as equal: float32 rounding in short sums."""


SUCCESS = 1.0
"""Smallest reward of a success."""


def all_equal(rewards: Iterable[float]) -> bool:
    """Return whether rewards are equal within the tolerance; true if there are none."""
    known = list(rewards)
    return not known or isclose(min(known), max(known), rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def reaches(reward: float, bound: float) -> bool:
    """Return whether a reward is at least a bound, within the tolerance."""
    return reward >= bound or isclose(reward, bound, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def failed(reward: float) -> bool:
    """Return whether a reward is 0 within the tolerance, or less."""
    return reward <= TOLERANCE


def task_means(rewards: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the mean reward of each task; attempts without a reward, which are masked, do not count."""
    by_task: dict[str, list[float]] = {}
    for task, reward in rewards:
        if reward is not None:
            by_task.setdefault(task, []).append(reward)
    return {task: sum(values) / len(values) for task, values in by_task.items()}


def mean_over_tasks(means: Mapping[str, float]) -> float | None:
    """Return the mean of tasks' mean rewards, in which each task weighs the same; None without tasks."""
    return sum(means.values()) / len(means) if means else None
