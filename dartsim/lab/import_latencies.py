"""Measured latencies from a CSV file: a profile with their distributions, and how well each kind fits."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.core.errors import ConfigError
from dartsim.sim.latency import from_spec

STEPS = ("start", "boot", "setup", "step", "evaluate", "teardown")
"""Latencies of a desktop (``cluster.env.latency``)."""

UNITS = {"s": 1.0, "ms": 1e-3}
MAX_SAMPLES = 500
"""Samples of a written empirical distribution; of more, as many evenly spaced quantiles."""
DRAWS = 100_000
"""Draws of a candidate that a KS distance is computed from: its error is about 0.002."""
SHIFTS = 10
"""Shifts of the lognormal that are tried, in equal steps."""
MAX_SHOWN = 2_000
"""Measurements in a plot."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A distribution fitted to measurements.

    Attributes:
        kind: Its name.
        spec: What a profile says.
        ks: Kolmogorov-Smirnov distance to the measurements: largest difference of the distribution functions.
        mean: Its mean, seconds.
        quantiles: Its quantiles at ``SHOWN``, seconds.
    """

    kind: str
    spec: Mapping[str, Any]
    ks: float
    mean: float
    quantiles: Sequence[float]


SHOWN = tuple((number + 0.5) / 200 for number in range(200))
"""Quantiles of a candidate in a plot."""


def read_column(file: Path, column: str, unit: str = "s") -> Floats:
    """Return the seconds in a column of a CSV file; empty cells are left out.

    Raises:
        ConfigError: If the file, the column or a value in it is not usable; names the line.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            names = rows.fieldnames or []
            if column not in names:
                raise ConfigError(f"{file} has no column {column!r}; it has: {', '.join(names) or 'none'}")
            cells = [(rows.line_num, (row[column] or "").strip()) for row in rows]
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file} is not a CSV file: {error}") from None
    seconds = [UNITS[unit] * _number(file, line, column, cell) for line, cell in cells if cell]
    if len(seconds) < 2:
        raise ConfigError(f"{file}: column {column!r} has {len(seconds)} values; two or more are wanted")
    return np.array(seconds)


def _number(file: Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0.0:
        raise ConfigError(f"{file}, line {line}: {column} = {cell!r}; a number of 0 or more is wanted")
    return value


def candidates(seconds: Floats) -> list[Candidate]:
    """Return the fitted distributions, the smallest KS distance first.

    The lognormal has the measured mean and standard deviation of the logarithm; a shifted one too, with the shift from
    0 to just below the smallest value whose KS distance is least. The gamma has the measured mean and standard
    deviation; empirical repeats the measurements.
    """
    mean, spread, low = float(seconds.mean()), float(seconds.std(ddof=1)), float(seconds.min())
    specs: list[dict[str, Any]] = [{"kind": "empirical", "samples": _thinned(seconds)}]
    if spread > 0.0:
        specs.append({"kind": "gamma", "mean_seconds": mean, "k": (mean / spread) ** 2})
        if low > 0.0:
            specs.append(_lognormal(seconds))
    else:
        specs.append({"kind": "constant", "seconds": mean})
    fitted = [_candidate(seconds, spec) for spec in specs]
    if spread > 0.0 and low > 0.0:
        # Not by maximum likelihood, which has no maximum: it grows without bound as the shift nears the least value.
        shifts = [*(low * number / SHIFTS for number in range(SHIFTS)), max(0.0, low - spread / len(seconds))]
        shifted = (
            _candidate(seconds, {"kind": "shifted", "seconds": shift, "of": _lognormal(seconds - shift)})
            for shift in shifts
        )
        fitted.append(min(shifted, key=lambda candidate: candidate.ks))
    return sorted(fitted, key=lambda candidate: candidate.ks)


def _lognormal(seconds: Floats) -> dict[str, Any]:
    logs = np.log(seconds)
    return {"kind": "lognormal", "median_seconds": float(np.exp(logs.mean())), "sigma": float(logs.std(ddof=1))}


def _thinned(seconds: Floats) -> list[float]:
    if len(seconds) <= MAX_SAMPLES:
        return [round(value, 6) for value in sorted(seconds.tolist())]
    kept = np.quantile(seconds, (np.arange(MAX_SAMPLES) + 0.5) / MAX_SAMPLES)
    return [round(value, 6) for value in kept.tolist()]


def _candidate(seconds: Floats, spec: Mapping[str, Any]) -> Candidate:
    latency = from_spec(spec)
    draws = np.sort(latency.draw(np.random.default_rng(0), DRAWS))
    name = "shifted lognormal" if spec["kind"] == "shifted" else spec["kind"]
    return Candidate(name, spec, ks_distance(seconds, draws), latency.mean, np.quantile(draws, SHOWN).tolist())


def ks_distance(first: Floats, second: Floats) -> float:
    """Return the largest difference of the empirical distribution functions of two samples."""
    a, b = np.sort(first), np.sort(second)
    at = np.concatenate([a, b])
    below = [np.searchsorted(values, at, side="right") / len(values) for values in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def chosen(fitted: Sequence[Candidate], kind: str | None) -> Candidate:
    """Return the fit of a kind; None: the closest one with a formula, as measurements are always close to themselves.

    Raises:
        ConfigError: If that kind was not fitted.
    """
    for candidate in fitted:
        if kind == candidate.kind or (kind is None and candidate.kind != "empirical"):
            return candidate
    raise ConfigError(f"no {kind!r} was fitted; there are: {', '.join(candidate.kind for candidate in fitted)}")
