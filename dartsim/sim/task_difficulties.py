"""The difficulty of tasks for the surrogate policy: the probability of success, and the length of attempts.

Success rates follow measurements: DART's difficulty deciles for generated tasks, published results by domain for
OSWorld's. Attempts at one task have similar lengths (a factor per task), which is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from dartsim.core.errors import ConfigError
from dartsim.core.types import Task

DECILES = (33, 15, 13, 8, 6, 10, 11, 17, 15, 53)
"""Tasks of DART's 181-task run by success rate 0-0.1, …, 0.9-1 (its released run data, measured)."""
NEVER_SOLVED = 17
"""Tasks of the first decile at exactly 0 in that run."""
ALWAYS_SOLVED = 21
"""Tasks of the last decile at exactly 1 in that run."""
MEAN_SUCCESS = 0.559
"""Mean success rate of these tasks."""

DOMAINS = (
    "chrome",
    "gimp",
    "libreoffice_calc",
    "libreoffice_impress",
    "libreoffice_writer",
    "multi_apps",
    "os",
    "thunderbird",
    "vlc",
    "vs_code",
)
"""OSWorld's domains, in the order of the rows below."""

PUBLISHED = (52.09, 76.92, 19.15, 48.80, 60.86, 16.69, 62.50, 60.00, 39.30, 69.57)
"""DART-GUI-7B's success rates on OSWorld-Verified by domain, per cent, at most 30 turns (DART's project page)."""

CONCENTRATION = 0.8
"""Concentration of the Beta distribution within a domain, from the measured deciles' mean and variance (.560, .137)."""

Rates = NDArray[np.float64]

LENGTH_SD = 0.35
"""Standard deviation of a task's length factor, mean 1: assumed, range 0.2-0.5 (no figure is published)."""


@dataclass(frozen=True, slots=True)
class TaskDifficulty:
    """What the surrogate policy knows about a task.

    Attributes:
        success_rate: Probability that an attempt solves it, in [0, 1].
        length_factor: Length of its attempts relative to the average task's, > 0.
    """

    success_rate: float
    length_factor: float = 1.0


def deciles(num_tasks: int, rng: np.random.Generator, mean: float | None = None) -> list[float]:
    """Return success rates with the measured distribution, in random order.

    The rates are the quantiles at (i + 1/2) / ``num_tasks`` of the measured deciles (uniform within a decile, with the
    measured shares at exactly 0 and 1), so only their order is random. Their mean is .560.

    Raises:
        ConfigError: If that mean cannot be reached without touching tasks at 0 or 1.
    """
    if num_tasks < 1:
        raise ConfigError(f"num_tasks must be at least 1, got {num_tasks}")
    first, last = DECILES[0] - NEVER_SOLVED, DECILES[-1] - ALWAYS_SOLVED
    counts = [NEVER_SOLVED, first, *DECILES[1:-1], last, ALWAYS_SOLVED]
    edges = [0.0, 0.0, *(i / 10 for i in range(1, 11)), 1.0]
    shares = np.concatenate([[0], np.cumsum(counts)]) / sum(counts)
    rates = np.interp((np.arange(num_tasks) + 0.5) / num_tasks, shares, edges)
    if mean is not None:
        rates = _with_mean(rates, mean)
    rng.shuffle(rates)
    return [float(rate) for rate in rates]


def by_domain(
    tasks: Sequence[Task],
    rng: np.random.Generator,
) -> list[float]:
    """Return success rates of OSWorld tasks whose mean in each domain is the published one.

    Within a domain the rates are drawn from a Beta distribution with the published mean and a small ``CONCENTRATION``
    (most tasks are nearly always or nearly never solved), then all odds are multiplied by one number that makes their
    mean exact. They do not depend on the order of ``tasks``.

    Raises:
        ConfigError: If a task's domain is unknown.
    """
    means = dict(zip(DOMAINS, PUBLISHED, strict=True))
    rates: dict[str, float] = {}
    for domain in sorted({task.domain for task in tasks}):
        if domain not in means:
            raise ConfigError(f"no published result for domain {domain!r}; known: {', '.join(DOMAINS)}")
        mean = means[domain] / 100
        ids = sorted(task.id for task in tasks if task.domain == domain)
        drawn = rng.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, len(ids))
        rates.update(zip(ids, _with_mean(np.clip(drawn, 1e-6, 1 - 1e-6), mean).tolist(), strict=True))
    return [rates[task.id] for task in tasks]


def difficulties(
    tasks: Sequence[Task],
    rng: np.random.Generator,
    *,
    domains: bool = False,
    mean: float | None = None,
    length_sd: float = LENGTH_SD,
) -> dict[str, TaskDifficulty]:
    """Return every task's difficulty by its id.

    Args:
        tasks: Tasks with unique ids.
        rng: Random generator.
        domains: Whether the tasks are OSWorld's, with the results published for their domains.
        mean: The wanted mean success rate of other tasks.
        length_sd: Standard deviation of the length factors, which are lognormal with mean 1.

    """
    rate_rng, length_rng = rng.spawn(2)
    rates = by_domain(tasks, rate_rng) if domains else deciles(len(tasks), rate_rng, mean)
    sigma = sqrt(log1p(length_sd**2))
    factors = length_rng.lognormal(-(sigma**2) / 2, sigma, len(tasks)).tolist()
    return {task.id: TaskDifficulty(*pair) for task, *pair in zip(tasks, rates, factors, strict=True)}


def _with_mean(rates: Rates, mean: float) -> Rates:
    """Multiply the odds of all rates by one number so that their mean is ``mean``; 0 and 1 stay."""
    lowest, highest = float((rates == 1).mean()), float((rates > 0).mean())
    if not lowest <= mean <= highest or (mean in (lowest, highest) and rates.mean() != mean):
        raise ConfigError(
            f"a mean success rate of {mean} cannot be reached: {lowest:.3g} of the tasks are always and "
            f"{1 - highest:.3g} never solved, so it lies between {lowest:.3g} and {highest:.3g}"
        )
    low, high = -60.0, 60.0  # logarithm of the factor on the odds
    for _ in range(100):
        middle = (low + high) / 2
        if _shift_odds(rates, middle).mean() < mean:
            low = middle
        else:
            high = middle
    return _shift_odds(rates, (low + high) / 2)


def _shift_odds(rates: Rates, log_factor: float) -> Rates:
    factor = exp(log_factor)
    return rates * factor / (1 - rates + rates * factor)
