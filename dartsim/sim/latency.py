"""Latencies: immutable distributions of seconds, and their parser from plain data.

A distribution is a value: it can be compared, hashed and written into a configuration. Randomness enters only with
``sampler(rng)``, which draws in blocks, because numpy costs 2 µs per call and almost nothing per number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import chain, pairwise, repeat
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Strict, TypeAdapter, ValidationError

from dartsim.core.errors import ConfigError, did_you_mean

Number = Annotated[float, Strict()]
_NUMBER: TypeAdapter[float] = TypeAdapter(Number)

BLOCK = 128
"""Numbers drawn at once."""

_STANDARD_NORMAL = NormalDist()


def _check(name: str, value: float, *, zero: bool = False) -> None:
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ConfigError(f"latency: {name} must be {'>= 0' if zero else '> 0'} and finite, found {value}")


MAX_SIGMA = 25.0
"""Largest sigma for which a lognormal's standard deviation does not overflow."""


class Latency(ABC):
    """A distribution of non-negative seconds."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Expected seconds."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent draws, in seconds."""

    @abstractmethod
    def capped_mean(self, cap: float) -> float:
        """Return the expectation of ``min(draw, cap)``, in seconds."""

    def sampler(self, rng: np.random.Generator) -> Callable[[], float]:
        """Return a function that returns one draw per call; it owns ``rng`` from now on."""
        return chain.from_iterable(self._blocks(rng)).__next__

    def _blocks(self, rng: np.random.Generator) -> Iterator[array[float]]:
        while True:
            # An array stores numbers, not objects: with many hosts, most draws stay in memory for long.
            yield array("d", self.draw(rng, BLOCK).tobytes())


@dataclass(frozen=True, slots=True)
class Constant(Latency):
    """Always the same."""

    seconds: float

    def __post_init__(self) -> None:
        _check("seconds", self.seconds, zero=True)

    @property
    def mean(self) -> float:
        return self.seconds

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ``size`` copies of the value; draws nothing."""
        return np.full(size, self.seconds)

    def capped_mean(self, cap: float) -> float:
        """Return the smaller of value and cap."""
        return min(self.seconds, cap)

    def sampler(self, rng: np.random.Generator) -> Callable[[], float]:
        """Return a function that gives the value; draws nothing."""
        return repeat(float(self.seconds)).__next__


@dataclass(frozen=True, slots=True)
class Lognormal(Latency):
    """A lognormal, given by its own mean and standard deviation (not those of its logarithm)."""

    mean_seconds: float
    sd_seconds: float

    def __post_init__(self) -> None:
        _check("mean_seconds", self.mean_seconds)
        _check("sd_seconds", self.sd_seconds, zero=True)

    @classmethod
    def from_median(cls, median_seconds: float, sigma: float) -> Lognormal:
        """Return the lognormal whose logarithm has mean ``ln(median_seconds)`` and sd ``sigma``."""
        _check("median_seconds", median_seconds)
        _check("sigma", sigma, zero=True)
        if sigma > MAX_SIGMA:
            raise ConfigError(f"latency: sigma must be at most {MAX_SIGMA:g}, found {sigma}")
        mean = median_seconds * math.exp(sigma**2 / 2)
        return cls(mean, mean * math.sqrt(math.expm1(sigma**2)))

    @property
    def mean(self) -> float:
        return self.mean_seconds

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p((self.sd_seconds / self.mean_seconds) ** 2))

    @property
    def mu(self) -> float:
        """Mean of the logarithm (of seconds)."""
        return math.log(self.mean_seconds) - self.sigma**2 / 2

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return rng.lognormal(self.mu, self.sigma, size)

    def capped_mean(self, cap: float) -> float:
        """Return the expectation of ``min(draw, cap)``, in closed form."""
        if cap <= 0 or self.sigma == 0:
            return min(self.mean_seconds, cap)
        z = (math.log(cap) - self.mu) / self.sigma
        below = self.mean_seconds * _STANDARD_NORMAL.cdf(z - self.sigma)
        return below + cap * _STANDARD_NORMAL.cdf(-z)


@dataclass(frozen=True, slots=True)
class Gamma(Latency):
    """A gamma, given by mean and shape; the standard deviation is ``mean / sqrt(k)``.

    Attributes:
        mean_seconds: Mean, > 0.
        k: Shape, > 0, no unit: 1 is the exponential, large is nearly constant.
    """

    mean_seconds: float
    k: float

    def __post_init__(self) -> None:
        _check("mean_seconds", self.mean_seconds)
        _check("k", self.k)

    @property
    def mean(self) -> float:
        return self.mean_seconds

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return rng.gamma(self.k, self.mean_seconds / self.k, size)

    def capped_mean(self, cap: float) -> float:
        """Return the expectation of ``min(draw, cap)``, in closed form."""
        if cap <= 0:
            return cap
        x = cap * self.k / self.mean_seconds
        below = self.mean_seconds * _lower_gamma(self.k + 1, x)
        return below + cap * (1 - _lower_gamma(self.k, x))


@dataclass(frozen=True, slots=True)
class Quantiles(Latency):
    """An empirical distribution, given by some of its quantiles.

    Between quantiles the value is interpolated linearly, or linearly in its logarithm (for long tails). Below the first
    and above the last the nearest value is used: give quantiles 0 and 1 to set how far the tails reach.

    Attributes:
        points: (quantile in [0, 1], seconds), quantiles rising, seconds not falling.
        log: Interpolate the logarithm of the seconds.
    """

    points: tuple[tuple[float, float], ...]
    log: bool = False

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError("quantiles: no point given; give at least one (quantile, seconds)")
        for quantile, seconds in self.points:
            _check("seconds", seconds, zero=not self.log)
            if not 0 <= quantile <= 1:
                raise ConfigError(f"quantiles: quantile {quantile} is not in [0, 1]")
        for (q0, v0), (q1, v1) in pairwise(self.points):
            if q1 <= q0 or v1 < v0:
                raise ConfigError(
                    f"quantiles: ({q0}, {v0}) is followed by ({q1}, {v1}); "
                    f"quantiles must rise and seconds must not fall"
                )

    @property
    def mean(self) -> float:
        (first, low), (last, high) = self.points[0], self.points[-1]
        ends = first * low + (1 - last) * high
        return ends + sum((b[0] - a[0]) * self._middle(a[1], b[1]) for a, b in pairwise(self.points))

    def _middle(self, low: float, high: float) -> float:
        """Mean between two points: the midpoint, or the logarithmic mean."""
        if self.log and high > low:
            return (high - low) / math.log1p((high - low) / low)  # a quotient near 1 would lose precision
        return (low + high) / 2

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        quantiles = [point[0] for point in self.points]
        seconds = np.array([point[1] for point in self.points], dtype=np.float64)
        uniform = rng.random(size)
        if self.log:
            return np.exp(np.interp(uniform, quantiles, np.log(seconds)))
        return np.interp(uniform, quantiles, seconds).astype(np.float64)

    def capped_mean(self, cap: float) -> float:
        """Return the expectation of ``min(draw, cap)``: the mean of the points, cut off at the cap."""
        if cap <= self.points[0][1]:
            return cap
        kept = [point for point in self.points if point[1] < cap]
        above = self.points[len(kept) :]
        if not above:
            return self.mean
        (q0, v0), (q1, v1) = kept[-1], above[0]
        share = math.log(cap / v0) / math.log(v1 / v0) if self.log else (cap - v0) / (v1 - v0)
        return Quantiles((*kept, (q0 + share * (q1 - q0), cap)), self.log).mean


@dataclass(frozen=True, slots=True)
class Empirical(Latency):
    """Measured seconds, drawn with equal probability.

    Attributes:
        samples: The measured seconds, one or more.
    """

    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples:
            raise ConfigError("empirical: no sample given; give at least one number of seconds")
        for seconds in self.samples:
            _check("samples", seconds, zero=True)

    @property
    def mean(self) -> float:
        return math.fsum(self.samples) / len(self.samples)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return np.array(self.samples, dtype=np.float64)[rng.integers(len(self.samples), size=size)]

    def capped_mean(self, cap: float) -> float:
        return math.fsum(min(seconds, cap) for seconds in self.samples) / len(self.samples)


@dataclass(frozen=True, slots=True)
class Sum(Latency):
    """Independent parts, one after the other."""

    parts: tuple[Latency, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("sum: no part given; give at least one")

    @property
    def mean(self) -> float:
        return sum(part.mean for part in self.parts)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent draws, in seconds; each part draws a whole block in turn."""
        total = self.parts[0].draw(rng, size)
        for part in self.parts[1:]:
            total = total + part.draw(rng, size)
        return total

    def capped_mean(self, cap: float) -> float:
        """Return the expectation of ``min(draw, cap)``.

        Exact with at most one part that is not constant; otherwise an estimate (2^17 draws of a fixed seed,
        error about 0.3 % of the standard deviation).
        """
        fixed = sum(part.mean for part in self.parts if isinstance(part, Constant))
        varying = [part for part in self.parts if not isinstance(part, Constant)]
        if len(varying) <= 1:
            return fixed + (varying[0].capped_mean(cap - fixed) if varying else min(0.0, cap - fixed))
        draws = self.draw(np.random.default_rng(0), 2**17)
        return float(np.minimum(draws, cap).mean())


@dataclass(frozen=True, slots=True)
class Capped(Latency):
    """Another distribution, with every draw above the cap replaced by the cap."""

    of: Latency
    cap_seconds: float

    def __post_init__(self) -> None:
        _check("cap_seconds", self.cap_seconds)

    @property
    def mean(self) -> float:
        return self.of.capped_mean(self.cap_seconds)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return np.minimum(self.of.draw(rng, size), self.cap_seconds)

    def capped_mean(self, cap: float) -> float:
        return self.of.capped_mean(min(cap, self.cap_seconds))


def shifted(seconds: float, of: Latency) -> Sum:
    """Return another distribution plus a fixed time."""
    return Sum((Constant(seconds), of))


ZERO = Constant(0.0)
"""No time at all."""


def from_spec(spec: float | Mapping[str, Any]) -> Latency:
    """Return a distribution from plain configuration data.

    A number is a constant. A mapping has a ``kind`` and that kind's keys:

    ========== ====================================================================
    constant   ``seconds``
    lognormal  ``mean_seconds``, ``sd_seconds``; or ``median_seconds``, ``sigma``
    gamma      ``mean_seconds``, ``k``
    quantiles  ``points`` [[quantile, seconds], …], ``log`` (false)
    empirical  ``samples`` [seconds, …]
    sum        ``parts`` [spec, …]
    shifted    ``seconds``, ``of`` (spec)
    capped     ``cap_seconds``, ``of`` (spec)
    ========== ====================================================================

    Raises:
        ConfigError: If the kind or a key is unknown or missing (with the nearest valid one), or a value is invalid.
    """
    if isinstance(spec, bool) or not isinstance(spec, (int, float, Mapping)):
        raise ConfigError(f"a latency is a number of seconds or a table with a kind, found {spec!r}")
    if not isinstance(spec, Mapping):
        return Constant(float(spec))
    keys = dict(spec)
    kind = keys.pop("kind", None)
    if not isinstance(kind, str) or kind not in _FORMS:
        raise ConfigError(f"latency kind {kind!r} is unknown; {_nearest(str(kind), list(_FORMS))}")
    # Among a kind's forms, the one that shares most keys with the input.
    form: Callable[..., Latency] = max(_FORMS[kind], key=lambda form: len(signature(form).parameters.keys() & keys))
    parameters = signature(form).parameters
    for key in keys:
        if key not in parameters:
            raise ConfigError(f"latency of kind {kind!r} has no key {key!r}; {_nearest(str(key), list(parameters))}")
    required = [name for name, parameter in parameters.items() if parameter.default is Parameter.empty]
    if missing := [name for name in required if name not in keys]:
        raise ConfigError(f"latency of kind {kind!r} needs {', '.join(required)}; missing: {', '.join(missing)}")
    return form(**{name: _parse(name, value) for name, value in keys.items()})


_FORMS: dict[str, list[Callable[..., Latency]]] = {
    "constant": [Constant],
    "lognormal": [Lognormal, Lognormal.from_median],
    "gamma": [Gamma],
    "quantiles": [Quantiles],
    "empirical": [Empirical],
    "sum": [Sum],
    "shifted": [shifted],
    "capped": [Capped],
}
"""Constructors of each kind, whose parameters are the keys."""


def kinds() -> list[tuple[str, list[list[str]], str]]:
    """Return each kind with the keys of each of its forms, and its meaning."""
    return [
        (kind, [list(signature(form).parameters) for form in forms], (forms[0].__doc__ or "").partition("\n")[0])
        for kind, forms in _FORMS.items()
    ]


_VALUES: Mapping[str, TypeAdapter[Any]] = {
    "points": TypeAdapter(tuple[tuple[Number, Number], ...]),
    "log": TypeAdapter(Annotated[bool, Strict()]),
    "samples": TypeAdapter(tuple[Number, ...]),
    "parts": TypeAdapter(list[Any]),
}
_EXPECTED = {
    "points": "a list of [quantile, seconds]",
    "samples": "a list of seconds",
    "log": "true or false",
    "parts": "a list",
}

FIELDS: Mapping[str, str] = {
    "seconds": "seconds",
    "mean_seconds": "the mean, seconds",
    "sd_seconds": "the standard deviation, seconds",
    "median_seconds": "the median, seconds",
    "sigma": "standard deviation of the logarithm, no unit",
    "k": "shape, no unit: 1 is the exponential, large is nearly constant",
    "points": "pairs of a quantile, 0 to 1, and seconds, rising",
    "log": "true: interpolate the logarithm of the seconds; default false",
    "samples": "a list of seconds",
    "parts": "distributions, a list",
    "of": "a distribution",
    "cap_seconds": "the largest value, seconds",
}
"""The meaning of the fields of all kinds."""


def _parse(name: str, value: Any) -> Any:
    """Return the value of a key."""
    if name == "of":
        return from_spec(value)
    try:
        parsed = _VALUES.get(name, _NUMBER).validate_python(value)
    except ValidationError:
        raise ConfigError(f"latency: {name} must be {_EXPECTED.get(name, 'a number')}, found {value!r}") from None
    return tuple(map(from_spec, parsed)) if name == "parts" else parsed


def _nearest(given: str, known: list[str]) -> str:
    return did_you_mean(given, known).removeprefix("; ") or f"known: {', '.join(known)}"


def _lower_gamma(a: float, x: float) -> float:
    """Regularized lower incomplete gamma function P(a, x), by its series; all terms are positive."""
    if x <= 0:
        return 0.0
    if x > a + 40 * math.sqrt(a) + 100:
        return 1.0
    term = total = 1 / a
    n = a
    while term > total * 1e-16:
        n += 1
        term *= x / n
        total += term
    return min(1.0, total * math.exp(a * math.log(x) - x - math.lgamma(a)))
