"""Fits to measured seconds for a simulation: quantiles of a latency, a line through durations, factors that drift.

Quantiles and lines keep the mean of the measurements, because throughput follows means; medians and slopes are robust
to outliers. On a real machine a slow moment slows everything: independent factors would spread out the attempts of a
group, which waits for its slowest, so groups would be staler than in reality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dartsim.sim.latency import Quantiles

GRID = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
"""Quantiles of a latency that are kept."""

HUBER = 1.345
"""Residuals above this multiple of their scale count less; 95 % as efficient as least squares on normal residuals."""

ROUNDS = 50
"""Maximum number of re-weightings of a fit; a few are enough."""


def fit_quantiles(seconds: Sequence[float]) -> Quantiles:
    """Return the empirical distribution of measured seconds, with their mean.

    Interpolation between quantiles slightly overstates a long tail, so all values are scaled to the measured mean.
    """
    measured = np.asarray(seconds, dtype=np.float64)
    if not measured.size or not np.isfinite(measured).all() or measured.min() < 0.0:
        raise ValueError(f"wanted at least one duration, all >= 0 and finite, got {list(seconds)[:5]}")
    quantiles = np.maximum.accumulate(np.quantile(measured, GRID))
    mean = Quantiles(tuple(zip(GRID, quantiles.tolist(), strict=True))).mean
    scale = float(measured.mean()) / mean if mean > 0.0 else 1.0
    return Quantiles(tuple((quantile, value * scale) for quantile, value in zip(GRID, quantiles.tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class FittedLine:
    """``fixed + each * count`` seconds.

    Attributes:
        fixed: Seconds whatever the count, >= 0.
        each: Seconds per unit of the count, >= 0.
    """

    fixed: float
    each: float

    def seconds(self, count: float) -> float:
        """Return the seconds that the line gives a count."""
        return self.fixed + self.each * count


def fit_line(counts: Sequence[float], seconds: Sequence[float]) -> FittedLine:
    """Return a line through durations as a function of counts.

    The slope is Huber's, so a few disturbed durations do not tilt the line; the line passes through the means, so its
    total over the same counts is the measured total. Neither part is negative. If all counts are equal the parts
    cannot be separated, and each gets half.
    """
    x, y = np.asarray(counts, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not x.size or x.shape != y.shape or x.min() <= 0.0 or y.min() < 0.0:
        raise ValueError(f"wanted as many counts > 0 as seconds >= 0, got {x.size} and {y.size}")
    level, most = float(y.mean()), float(y.mean() / x.mean())
    slope = min(max(_slope(x, y), 0.0), most) if np.ptp(x) > 0.0 else most / 2.0
    return FittedLine(max(0.0, level - slope * float(x.mean())), slope)


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the slope of Huber's regression, by least squares re-weighted until convergence."""
    weights = np.ones_like(x)
    slope = 0.0
    for _ in range(ROUNDS):
        dx = x - np.average(x, weights=weights)
        level = np.average(y, weights=weights)
        before, slope = slope, float(np.sum(weights * dx * (y - level)) / np.sum(weights * dx * dx))
        residuals = np.abs(y - level - slope * dx)
        scale = 1.4826 * float(np.median(residuals))
        # More than half lie exactly on one line, so the others do not count.
        bound = max(HUBER * scale, 1e-12 * float(y.max()))
        weights = np.where(residuals <= bound, 1.0, bound / np.maximum(residuals, bound)) if bound > 0.0 else weights
        if abs(slope - before) <= 1e-12 * abs(slope):
            break
    return slope


def drifting_sampler(factors: Quantiles, memory: float, rng: np.random.Generator) -> Callable[[], float]:
    """Return a function that draws factors from a distribution, each correlated with the one before.

    Args:
        factors: Distribution of the factors.
        memory: Correlation of the normal scores of successive factors, from 0 (independent) to below 1.
        rng: Random generator.
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
    """Return the memory of measured factors, in order, from 0 to 0.99; 0 with fewer than three."""
    if len(factors) < 3:
        return 0.0
    inverse = NormalDist().inv_cdf
    ranks = np.argsort(np.argsort(np.asarray(factors), kind="stable"), kind="stable")
    scores = np.array([inverse((rank + 0.5) / len(factors)) for rank in ranks.tolist()])
    correlation = float(np.dot(scores[:-1], scores[1:]) / np.dot(scores, scores))
    return min(0.99, max(0.0, correlation))
