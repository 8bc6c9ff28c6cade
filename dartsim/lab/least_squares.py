"""Least squares on logarithms with lognormal priors: the maximum of a posterior, by Gauss-Newton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Priors of logarithms, and figures that depend on them.

    Attributes:
        mean: Means of the parameters' priors.
        precision: Inverse of their covariance.
        wanted: Figures to be met.
        weights: Inverse of the variance of each.
    """

    mean: Vector
    precision: Vector
    wanted: Vector
    weights: Vector

    def loss(self, at: Vector, values: Vector) -> float:
        away = at - self.mean
        return float(self.weights @ (self.wanted - values) ** 2 + away @ self.precision @ away)

    def newton(self, at: Vector, values: Vector, jacobian: Vector, used: Vector | slice = slice(None)) -> Vector:
        """Return the change from a point to the maximum of the linearized posterior, given some of the figures."""
        rows = jacobian[used]
        slope = rows.T @ (self.weights * (self.wanted - values))[used] + self.precision @ (self.mean - at)
        return np.linalg.solve(self.curvature(jacobian, used), slope)

    def curvature(self, jacobian: Vector, used: Vector | slice = slice(None)) -> Vector:
        """Return the inverse of the posterior's covariance, given some of the figures."""
        rows = jacobian[used]
        return rows.T @ (self.weights[used][:, None] * rows) + self.precision


@dataclass(frozen=True, slots=True)
class Fit:
    """The best point that was tried, its figures and their Jacobian, and the change that it suggests."""

    at: Vector
    values: Vector
    jacobian: Vector
    change: Vector


def maximize(
    known: Evidence,
    evaluate: Callable[[Vector], Vector],
    derive: Callable[[Vector, Vector], Vector],
    *,
    limits: Vector,
    attempts: int,
    close: float,
) -> Fit:
    """Find the maximum of a posterior.

    Args:
        known: Priors and figures.
        evaluate: Returns the figures at a point.
        derive: Returns their Jacobian, given a point and its figures; asked only where they are better than before.
        limits: Largest change of each parameter at once.
        attempts: Most points that are tried.
        close: Largest change, in these limits, that ends the search.
    """
    least, best = inf, Fit(known.mean, known.wanted, np.zeros((len(known.wanted), len(known.mean))), 0.0 * known.mean)
    for _ in range(attempts):
        at = best.at + best.change
        values = evaluate(at)
        loss = known.loss(at, values)
        if loss < least:
            jacobian = derive(at, values)
            change = known.newton(at, values, jacobian)
            change *= min(1.0, float(np.min(limits / np.maximum(np.abs(change), 1e-12))))
            least, best = loss, Fit(at, values, jacobian, change)
        else:  # the step was too long
            best = Fit(best.at, best.values, best.jacobian, best.change / 2.0)
        if np.max(np.abs(best.change) / limits) < close:
            break
    return best
