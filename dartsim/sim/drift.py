"""Factors that drift: how much longer something takes than its model says, alike for what comes shortly after it.

On a real machine a slow moment is slow for everybody. Drawn independently, the same factors would scatter the attempts
of a group, which then waits for its slowest: groups would be staler than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf, sqrt
from statistics import NormalDist

import numpy as np

from dartsim.sim.latency import Quantiles


def drifting(factors: Quantiles, memory: float, rng: np.random.Generator) -> Callable[[], float]:
    """Return what draws factors of a distribution, one after the other.

    Args:
        factors: Their distribution.
        memory: Correlation of the normal scores of two successive ones, from 0 (independent) to below 1.
        rng: Chance.
    """
    quantiles, values = zip(*factors.points, strict=True)
    fresh = sqrt(1.0 - memory * memory)
    score = float(rng.standard_normal())

    def draw() -> float:
        nonlocal score
        score = memory * score + fresh * float(rng.standard_normal())
        return float(np.interp((1.0 + erf(score / sqrt(2.0))) / 2.0, quantiles, values))

    return draw


def fit_memory(factors: Sequence[float]) -> float:
    """Return the memory of measured factors in their order, from 0 to 0.99; 0 of fewer than three."""
    if len(factors) < 3:
        return 0.0
    inverse = NormalDist().inv_cdf
    ranks = np.argsort(np.argsort(np.asarray(factors), kind="stable"), kind="stable")
    scores = np.array([inverse((rank + 0.5) / len(factors)) for rank in ranks.tolist()])
    found = float(np.dot(scores[:-1], scores[1:]) / np.dot(scores, scores))
    return min(0.99, max(0.0, found))
