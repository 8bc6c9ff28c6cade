"""Whether a run's own figures are precise enough to end it.

An observation is the time from one finished update to the next. MSER-5 cuts off the warm-up; the rest is divided into
20 batches (10, and MSER-2, if there are few updates), and a figure is the ratio of two batch means (amount and
minutes), with Student's t. Some rules guard against intervals that are narrow by chance or during a slow change:
correlation between neighboring batches widens the interval, by its estimate and two standard errors; there is no check
before 100 updates, or 25 that trained 6,400 attempts; the warm-up is at most a fifth; and a figure whose batch means
rise or fall significantly counts as drifting.

Sources: MSER-5, White (Simulation, 1997) and Hoad, Robinson and Davies (J. Oper. Res. Soc., 2010); 10 to 30 batches,
Schmeiser (Operations Research, 1982); correlated batches, Tafazzoli et al., Skart (INFORMS J. Computing, 2011), in a
simpler form; a line through the batch means, Kelton and Law (Naval Research Logistics, 1983).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dartsim.observe.figures import FIGURES, figures
from dartsim.observe.records import Snapshot

HEADLINE = ("trained_turns_per_minute", "env_utilization", "gpu_utilization")
"""Figures that must be steady."""
NUM_BATCHES, FEW_BATCHES = 20, 10
T95 = {NUM_BATCHES: 2.093, FEW_BATCHES: 2.262}
"""Student's t, two-sided 95 %, by number of batches."""
T90 = {NUM_BATCHES: 1.734, FEW_BATCHES: 1.860}
"""Student's t, two-sided 90 %, for a line through this many batches."""
MAX_CORRELATION = 0.9
"""Cap on the correlation of neighboring batches, at which the interval is 4.4 times as wide."""
MSER_SIZE, SHORT_MSER_SIZE = 5, 2
MAX_WARMUP = 0.2
FEWEST, FEWEST_LARGE, FEWEST_ATTEMPTS = 5 * NUM_BATCHES, 25, 6_400
CHECK_GROWTH = 1.25
"""Growth of the series between checks: with frequent checks, one would find a narrow interval by chance."""
TRAINED = "trained_trajectories"

Series = NDArray[np.float64]


class Interval(NamedTuple):
    """A figure, half its 95 % confidence interval, and its relative change per hour (0 if not significant)."""

    mean: float
    half_width: float
    drift: float = 0.0

    def is_steady(self, precision: float) -> bool:
        """Return whether it does not drift and its half width is at most this share of the mean."""
        return not self.drift and self.half_width <= precision * abs(self.mean)


def warmup_length(amounts: Series, minutes: Series) -> int | None:
    """Return how many leading observations MSER-5 cuts off; None if the series is too short or never settles.

    Args:
        amounts: [N] amount that each observation adds to the figure.
        minutes: [N] its duration, above 0.
    """
    size = MSER_SIZE if len(amounts) >= FEWEST else SHORT_MSER_SIZE
    num = len(amounts) // size
    if num < 4:
        return None
    whole = num * size
    sums = [series[:whole].reshape(num, size).sum(axis=1) for series in (amounts, minutes)]
    rates = sums[0] / sums[1]
    left = np.arange(num, 0, -1)
    mean = np.cumsum(rates[::-1])[::-1] / left
    squares = np.cumsum((rates**2)[::-1])[::-1] / left - mean**2
    statistic = np.maximum(squares, 0.0) / left  # the variance of the mean of the rest
    half = num // 2  # in the second half, few values remain and may be close by chance
    if np.argmin(statistic[: half + 1]) == half:
        return None
    return int(np.argmin(statistic[: int(MAX_WARMUP * num) + 1])) * size


def batch_means(amounts: Series, minutes: Series) -> Interval | None:
    """Return a figure per minute with its interval; None with too few observations.

    Args:
        amounts: [N] amount that each observation adds to the figure, without the warm-up.
        minutes: [N] its duration, above 0.
    """
    num = NUM_BATCHES if len(amounts) >= 4 * NUM_BATCHES else FEW_BATCHES
    size = len(amounts) // num
    if size < 1:
        return None
    kept = size * num
    amount, duration = (series[-kept:].reshape(num, size).sum(axis=1) for series in (amounts, minutes))
    mean = amount.sum() / duration.sum()
    errors = (amount - mean * duration) / duration.mean()  # the ratio's errors, to first order
    square = float(errors @ errors)
    if square <= (1e-9 * mean) ** 2:
        return Interval(float(mean), 0.0)
    half_width = _widening(errors, standard_errors=2.0) * T95[num] * sqrt(square / (num - 1) / num)
    return Interval(float(mean), half_width, _slope(errors) * 60.0 / float(duration.mean() * mean))


def _widening(errors: Series, *, standard_errors: float) -> float:
    """Return the factor by which neighbors' correlation, plus this many of its standard errors, widens an interval."""
    square = max(float(errors @ errors), 1e-300)
    correlation = float(errors[1:] @ errors[:-1]) / square + standard_errors / sqrt(len(errors))
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    return sqrt((1.0 + correlation) / (1.0 - correlation))


def _slope(errors: Series) -> float:
    """Return the slope of a line through the batches, per batch; 0 if it is not significant."""
    num = len(errors)
    place = np.arange(num) - (num - 1) / 2
    spread = float(place @ place)
    slope = float(place @ errors) / spread
    rest = errors - slope * place
    error = _widening(rest, standard_errors=0.0) * sqrt(float(rest @ rest) / (num - 2) / spread)
    return slope if abs(slope) > T90[num] * error else 0.0


def interval(amounts: Series, minutes: Series) -> Interval | None:
    """Return a figure's interval after the warm-up; None if the series is too short."""
    cut = warmup_length(amounts, minutes)
    return None if cut is None else batch_means(amounts[cut:], minutes[cut:])


class SteadyCheck:
    """Observes a run update by update, until no headline figure drifts and all have the wanted precision."""

    def __init__(self, precision: float) -> None:
        self._precision = precision
        self._last: Snapshot | None = None
        self._minutes: list[float] = []
        self._amounts: dict[str, list[float]] = {name: [] for name in HEADLINE}
        self._before = 0.0
        """Attempts trained before the first observation."""
        self._next = 0
        """Number of updates at the next check."""
        self.reached = False

    def start(self, snapshot: Snapshot) -> None:
        """Observe from this snapshot on, taken when the run starts or resumes."""
        self._last = snapshot
        self._before = snapshot.counts.get(TRAINED, 0.0)

    def update_finished(self, snapshot: Snapshot) -> None:
        """Add the observation that ends with this update, and check the intervals if a check is due."""
        assert self._last is not None, "a run starts before its updates"
        minutes = (snapshot.time - self._last.time) / 60.0
        if minutes <= 0.0 or self.reached:  # simultaneous updates are one observation
            return
        values = figures(self._last, snapshot)
        self._last = snapshot
        self._minutes.append(minutes)
        for name, amounts in self._amounts.items():
            amounts.append(values[name] * minutes)
        num = len(self._minutes)
        many = num >= FEWEST_LARGE and snapshot.counts.get(TRAINED, 0.0) - self._before >= FEWEST_ATTEMPTS
        if num >= self._next and (many or num >= FEWEST):
            self._next = int(CHECK_GROWTH * num) + 1
            known = self.intervals().values()
            self.reached = all(found is not None and found.is_steady(self._precision) for found in known)

    def intervals(self) -> dict[str, Interval | None]:
        """Return the interval of each figure; None if there is none yet."""
        minutes = np.array(self._minutes)
        return {name: interval(np.array(amounts), minutes) for name, amounts in self._amounts.items()}

    def as_json(self, *, hours: float, planned_hours: float) -> dict[str, Any]:
        """Return the state at the end of a run, as in ``summary.json``."""
        known = self.intervals()
        return {
            "reached": self.reached,
            "drifting": any(found is not None and found.drift for found in known.values()),
            "precision": self._precision,
            "hours": hours,
            "planned_hours": planned_hours,
            "updates": len(self._minutes),
            "figures": {name: found and found._asdict() for name, found in known.items()},
        }


def steady_text(steady: Mapping[str, Any]) -> str:
    """Return the state at the end of a run as text."""
    figures = ", ".join(
        f"{FIGURES[name].label} {'–' if value is None else '{:.4g} ± {:.2g}'.format(*_shown(name, value))}"
        for name, value in steady["figures"].items()
    )
    hours = f"after {steady['hours']:.1f} of {steady['planned_hours']:g} h: {figures}"
    if steady["reached"]:
        return f"steady {hours}"
    return f"{'still drifting' if steady['drifting'] else 'not steady'} {hours}"


def _shown(name: str, value: Mapping[str, float]) -> tuple[float, float]:
    scale = FIGURES[name].scale
    return scale * value["mean"], scale * value["half_width"]
