"""Success rates of attempts by domain and overall, with intervals, and pass@k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, sqrt
from typing import Any

from dartsim.core.rewards import SUCCESS, reaches

Z95 = 1.959963984540054
"""Quantile of the normal distribution for a two-sided 95 % interval."""


def wilson(mean: float, count: float) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share.

    It is conservative for means of values strictly between 0 and 1: their variance is at most mean (1 - mean).

    Args:
        mean: The share.
        count: Independent observations, above 0.

    Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), 209.
    """
    if count <= 0:
        raise ValueError(f"an interval needs observations, got {count}")
    shrink = 1.0 + Z95**2 / count
    center = (mean + Z95**2 / (2 * count)) / shrink
    half = Z95 / shrink * sqrt(mean * (1.0 - mean) / count + Z95**2 / (4 * count**2))
    return max(0.0, center - half), min(1.0, center + half)


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of the probability that one of ``k`` attempts succeeds: 1 - C(n-c, k) / C(n, k).

    Raises:
        ValueError: If there were fewer than ``k`` attempts, or more successes than attempts.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code" (arXiv 2107.03374), equation 1.
    """
    if not 0 <= successes <= attempts or not 1 <= k <= attempts:
        raise ValueError(f"wanted 1 <= k <= attempts and 0 <= successes <= attempts, got {k}, {attempts}, {successes}")
    return 1.0 - comb(attempts - successes, k) / comb(attempts, k)


def success_figures(scores: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return success figures, JSON-serializable.

    The success rate is the mean over tasks of their attempts' mean score, as in OSWorld; for its interval each task is
    one observation, because attempts at one task are correlated.

    Args:
        scores: Scores of the unmasked attempts at each task; tasks without attempts are ignored.
    """
    played = {task: values for task, values in scores.items() if values}
    if not played:
        return {"tasks": 0, "attempts": 0, "success_rate": None, "interval": None, "pass_at": {}}
    rate = sum(sum(values) / len(values) for values in played.values()) / len(played)
    most = max(map(len, played.values()))
    pass_at = {}
    for k in sorted({1, most, *(2**power for power in range(1, most.bit_length()))}):
        enough = [values for values in played.values() if len(values) >= k]
        passed = [pass_at_k(len(values), sum(reaches(value, SUCCESS) for value in values), k) for values in enough]
        pass_at[str(k)] = {"value": sum(passed) / len(passed), "tasks": len(passed)}
    return {
        "tasks": len(played),
        "attempts": sum(map(len, played.values())),
        "success_rate": rate,
        "interval": list(wilson(rate, len(played))),
        "pass_at": pass_at,
    }
