"""Confidence intervals of a run's figures from that run alone, and whether they are narrow enough to end it.

An observation is the time from one finished update to the next, with what each figure amounts to in it: turns are
trained in lumps of an update, and a batch cut by the clock would hold a part of one. The warm-up is cut off by MSER-5,
the rest is divided into 20 batches of equally many updates (10 batches, and MSER-2, where the updates are few), and the
figure is the ratio of two batch means (amount and minutes), with Student's t.

A run that ends as soon as its intervals are narrow ends too often where they are so by chance, or within a slow change.
Four rules against it: correlation between neighboring batches widens the interval, by its estimate and two standard
errors; no check before 100 updates or, in a large cluster, whose updates are means of many attempts, before 25 that
trained 6,400; a warm-up of at most a fifth, so what settles slowly needs a long run; and a figure drifts, and is not
steady, while a line through its batch means rises or falls significantly.

Sources: MSER-5, White, "An effective truncation heuristic for bias reduction in simulation output" (Simulation, 1997)
and Hoad, Robinson and Davies, "Automating warm-up length estimation" (J. Oper. Res. Soc., 2010); 10 to 30 batches,
Schmeiser, "Batch size effects in the analysis of simulation output" (Operations Research, 1982); wider intervals for
correlated batches, Tafazzoli et al., "Performance of Skart" (INFORMS J. Computing, 2011), in a simpler form; a line
without slope through the batch means, Kelton and Law, "A new approach for dealing with the startup problem in discrete
event simulation" (Naval Research Logistics, 1983).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dartsim.observe.figures import FIGURES, figure_parts, figures
from dartsim.observe.records import Snapshot

NUM_BATCHES, FEW_BATCHES = 20, 10
"""Batches, and those of a series too short for four observations in each."""
T95 = {NUM_BATCHES: 2.093, FEW_BATCHES: 2.262}
"""Student's t, two-sided 95 %, for the degrees of freedom of so many batches."""
T90 = {NUM_BATCHES: 1.734, FEW_BATCHES: 1.860}
"""Student's t, two-sided 90 %, for the degrees of freedom of a line through so many batches."""
MAX_CORRELATION = 0.9
"""Largest correlation of neighboring batches that counts: it makes an interval 4.4 times as wide."""
MSER_SIZE, SHORT_MSER_SIZE = 5, 2
MAX_WARMUP = 0.2
"""Largest share of the updates that is cut off."""
FEWEST = 5 * NUM_BATCHES
"""Updates before the first check: at least four in each batch, after the longest warm-up."""
FEWEST_LARGE, FEWEST_ATTEMPTS = 25, 6_400
"""Updates and trained attempts that allow an earlier check: as many attempts as 100 updates of 8 groups of 8."""
CHECK_GROWTH = 1.25
"""Growth of the series from one check to the next: one that is tested often is narrow by chance."""

TRAINED = "trained_trajectories"

Series = NDArray[np.float64]


class Interval(NamedTuple):
    """A figure, half its 95 % confidence interval, and its change an hour as a share of it; 0 if not significant."""

    mean: float
    half_width: float
    drift: float = 0.0

    def is_steady(self, precision: float) -> bool:
        """Return whether it does not drift, and the half width is at most this share of the mean."""
        return not self.drift and self.half_width <= precision * abs(self.mean)


def warmup_length(amounts: Series, minutes: Series) -> int | None:
    """Return how many leading observations MSER-5 cuts off; None if the series is too short or never settles.

    Args:
        amounts: [N] what each observation adds to a figure.
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
    statistic = np.maximum(squares, 0.0) / left  # the variance of the mean of what is left
    half = num // 2  # in the second half, few values are close by chance
    if np.argmin(statistic[: half + 1]) == half:
        return None
    return int(np.argmin(statistic[: int(MAX_WARMUP * num) + 1])) * size


def batch_means(amounts: Series, minutes: Series) -> Interval | None:
    """Return a figure per minute with its interval; None with too few observations.

    Args:
        amounts: [N] what each observation adds to the figure, without warm-up.
        minutes: [N] its duration, above 0.
    """
    num = NUM_BATCHES if len(amounts) >= 4 * NUM_BATCHES else FEW_BATCHES
    size = len(amounts) // num
    if size < 1:
        return None
    kept = size * num
    amount, duration = (series[-kept:].reshape(num, size).sum(axis=1) for series in (amounts, minutes))
    mean = amount.sum() / duration.sum()
    errors = (amount - mean * duration) / duration.mean()  # of a ratio, to first order
    square = float(errors @ errors)
    if square <= (1e-9 * mean) ** 2:
        return Interval(float(mean), 0.0)
    half_width = _widening(errors, standard_errors=2.0) * T95[num] * sqrt(square / (num - 1) / num)
    return Interval(float(mean), half_width, _slope(errors) * 60.0 / float(duration.mean() * mean))


def _widening(errors: Series, *, standard_errors: float) -> float:
    """Return by how much correlation widens an interval: that of neighbors, plus so many standard errors of it."""
    square = max(float(errors @ errors), 1e-300)
    correlation = float(errors[1:] @ errors[:-1]) / square + standard_errors / sqrt(len(errors))
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    return sqrt((1.0 + correlation) / (1.0 - correlation))


def _slope(errors: Series) -> float:
    """Return the rise of a line through the batches, from one to the next; 0 if it is not significant."""
    num = len(errors)
    place = np.arange(num) - (num - 1) / 2
    spread = float(place @ place)
    slope = float(place @ errors) / spread
    rest = errors - slope * place
    error = _widening(rest, standard_errors=0.0) * sqrt(float(rest @ rest) / (num - 2) / spread)
    return slope if abs(slope) > T90[num] * error else 0.0


def interval(amounts: Series, minutes: Series) -> Interval | None:
    """Return a figure's interval after its warm-up; None if the series has none yet."""
    cut = warmup_length(amounts, minutes)
    return None if cut is None else batch_means(amounts[cut:], minutes[cut:])


class SteadyCheck:
    """Observes a run from update to update until no chosen figure drifts and all are known with a precision.

    Args:
        names: Figures that are rates or shares of time.
        precision: Largest half width, as a share of the figure.
    """

    def __init__(self, names: Sequence[str], precision: float) -> None:
        self._names = tuple(names)
        self._precision = precision
        self._last: Snapshot | None = None
        self._minutes: list[float] = []
        self._amounts: dict[str, list[float]] = {name: [] for name in self._names}
        self._before = 0.0
        """Attempts that were trained before the first observation."""
        self._next = 0
        """Updates before the next check."""
        self.reached = False

    def start(self, snapshot: Snapshot) -> None:
        """Observe from this snapshot on: that of the run's start, or of the point at which it resumes."""
        self._last = snapshot
        self._before = snapshot.counts.get(TRAINED, 0.0)

    def update_finished(self, snapshot: Snapshot) -> None:
        """Add the observation that ends with this update, and check the intervals if it is time."""
        assert self._last is not None, "a run starts before its updates"
        minutes = (snapshot.time - self._last.time) / 60.0
        if minutes <= 0.0 or self.reached:  # two updates at one time are one observation
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
        """Return the interval of each figure; None where there is none yet."""
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
    """Return the state at the end of a run in words."""
    found = steady["figures"]
    texts = ", ".join(_figure_text(name, value) for name, value in found.items())
    if steady["reached"]:
        return f"steady after {steady['hours']:.1f} of {steady['planned_hours']:g} h: {texts}"
    drifts = ", ".join(
        f"{FIGURES[name].label.lower()} {100.0 * value['drift']:+.2g} % an hour"
        for name, value in found.items()
        if value is not None and value["drift"]
    )
    why = f": still drifting ({drifts})" if drifts else f" within {100.0 * steady['precision']:.3g} %"
    return f"not steady{why} after {steady['hours']:.1f} h and {steady['updates']} updates: {texts}"


def steady_runs_text(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return which share of several runs, or of means of runs, became steady, and when on average, or still drifts."""
    names = ("reached", "drifting", "hours", "planned_hours")
    reached, drifting, hours, planned = (fmean(run[name] for run in runs) for name in names)
    within, still = f"{100.0 * runs[0]['precision']:.3g} %", f"; still drifting: {drifting:.0%}" if drifting else ""
    return f"steady within {within}: {reached:.0%} of runs, ended after {hours:.1f} of {planned:g} h on average{still}"


def _figure_text(name: str, value: Mapping[str, float] | None) -> str:
    style = FIGURES[name]
    if value is None:
        return f"{style.label} – (too few updates, or not settled)"
    mean, unit = figure_parts(name, value["mean"])
    return f"{style.label} {mean} ± {value['half_width'] * style.scale:.{max(1, style.decimals)}f} {unit}".rstrip()
