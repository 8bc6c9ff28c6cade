"""Latencies: immutable distributions of seconds, and their parser from plain data.

A distribution is a value: it can be compared, hashed and written into a configuration. Randomness enters only with
``sampler(rng)``, which draws in blocks, because numpy costs 2 µs per call and almost nothing per number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from itertools import chain, pairwise, repeat
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, Field, InstanceOf, Strict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dartsim.core.errors import ConfigError, did_you_mean

BLOCK = 128
"""Numbers drawn at once."""

MAX_SIGMA = 25.0
"""Largest sigma for which a lognormal's standard deviation does not overflow."""

Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Strict(), Field(ge=0, le=1)]

_CHECKED = ConfigDict(extra="forbid")


class Latency(ABC):
    """A distribution of non-negative seconds."""

    kind: ClassVar[str]
    """Its name in configurations."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Expected seconds."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent draws, in seconds."""

    def sampler(self, rng: np.random.Generator) -> Callable[[], float]:
        """Return a function that returns one draw per call; it owns ``rng`` from now on."""
        return chain.from_iterable(self._blocks(rng)).__next__

    def _blocks(self, rng: np.random.Generator) -> Iterator[array[float]]:
        while True:
            # An array stores numbers, not objects: with many hosts, most draws stay in memory for long.
            yield array("d", self.draw(rng, BLOCK).tobytes())


Nested = Annotated[InstanceOf[Latency], BeforeValidator(lambda spec: from_spec(spec))]
"""A distribution inside another one, given as such or as plain data."""


@dataclass(frozen=True, slots=True, config=_CHECKED)
class Constant(Latency):
    """Always the same."""

    kind = "constant"
    seconds: Annotated[NotNegative, Field(description="seconds")]

    @property
    def mean(self) -> float:
        return self.seconds

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ``size`` copies of the value; draws nothing."""
        return np.full(size, self.seconds)

    def sampler(self, rng: np.random.Generator) -> Callable[[], float]:
        """Return a function that gives the value; draws nothing."""
        return repeat(float(self.seconds)).__next__


@dataclass(frozen=True, slots=True, config=_CHECKED)
class Lognormal(Latency):
    """A lognormal, given by its own mean and standard deviation (not those of its logarithm)."""

    kind = "lognormal"
    mean_seconds: Annotated[Positive, Field(description="the mean, seconds")]
    sd_seconds: Annotated[NotNegative, Field(description="the standard deviation, seconds")]

    @classmethod
    def from_median(cls, median_seconds: float, sigma: float) -> Lognormal:
        """Return the lognormal whose logarithm has mean ``ln(median_seconds)`` and sd ``sigma``."""
        return MedianLognormal(median_seconds, sigma).lognormal()

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


@dataclass(frozen=True, slots=True, config=_CHECKED)
class MedianLognormal:
    """A lognormal, given by its median."""

    median_seconds: Annotated[Positive, Field(description="the median, seconds")]
    sigma: Annotated[NotNegative, Field(le=MAX_SIGMA, description="standard deviation of the logarithm, no unit")]

    def lognormal(self) -> Lognormal:
        mean = self.median_seconds * math.exp(self.sigma**2 / 2)
        return Lognormal(mean, mean * math.sqrt(math.expm1(self.sigma**2)))


@dataclass(frozen=True, slots=True, config=_CHECKED)
class Gamma(Latency):
    """A gamma, given by mean and shape; the standard deviation is ``mean / sqrt(k)``."""

    kind = "gamma"
    mean_seconds: Annotated[Positive, Field(description="the mean, seconds")]
    k: Annotated[Positive, Field(description="shape, no unit: 1 is the exponential, large is nearly constant")]

    @property
    def mean(self) -> float:
        return self.mean_seconds

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return rng.gamma(self.k, self.mean_seconds / self.k, size)


@dataclass(frozen=True, slots=True, config=_CHECKED)
class Quantiles(Latency):
    """An empirical distribution, given by some of its quantiles.

    Between quantiles the value is interpolated linearly, or linearly in its logarithm (for long tails). Below the first
    and above the last the nearest value is used: give quantiles 0 and 1 to set how far the tails reach.
    """

    kind = "quantiles"
    points: Annotated[
        tuple[tuple[Probability, NotNegative], ...],
        Field(min_length=1, description="pairs of a quantile, 0 to 1, and seconds, rising"),
    ]
    log: Annotated[
        bool, Strict(), Field(description="true: interpolate the logarithm of the seconds; default false")
    ] = False

    def __post_init__(self) -> None:
        if self.log and not self.points[0][1] > 0:
            raise ValueError("points: with log, seconds must be greater than 0")
        for (q0, v0), (q1, v1) in pairwise(self.points):
            if q1 <= q0 or v1 < v0:
                raise ValueError(
                    f"points: ({q0}, {v0}) is followed by ({q1}, {v1}); quantiles must rise and seconds must not fall"
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


@dataclass(frozen=True, slots=True, config=_CHECKED)
class Sum(Latency):
    """Independent parts, one after the other."""

    kind = "sum"
    parts: Annotated[tuple[Nested, ...], Field(min_length=1, description="distributions, a list")]

    @property
    def mean(self) -> float:
        return sum(part.mean for part in self.parts)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ``size`` independent draws, in seconds; each part draws a whole block in turn."""
        total = self.parts[0].draw(rng, size)
        for part in self.parts[1:]:
            total = total + part.draw(rng, size)
        return total


@dataclass(frozen=True, slots=True, config=_CHECKED)
class Capped(Latency):
    """Another distribution, with every draw above the cap replaced by the cap."""

    kind = "capped"
    of: Annotated[Nested, Field(description="a distribution")]
    cap_seconds: Annotated[Positive, Field(description="the largest value, seconds")]

    @property
    def mean(self) -> float:
        """Expected seconds: the mean of 2^17 draws of a fixed seed, with an error of about 0.3 % of their deviation."""
        return _mean_of_draws(self)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return np.minimum(self.of.draw(rng, size), self.cap_seconds)


@cache
def _mean_of_draws(latency: Latency) -> float:
    return float(latency.draw(np.random.default_rng(0), 2**17).mean())


ZERO = Constant(0.0)
"""No time at all."""

KINDS: Mapping[str, type[Latency]] = {form.kind: form for form in (Constant, Lognormal, Gamma, Quantiles, Sum, Capped)}
"""Every kind of distribution, by name."""


def from_spec(spec: Any) -> Latency:
    """Return a distribution from plain configuration data: a number of seconds, or a table with a kind and its keys.

    Raises:
        ConfigError: If the kind or a key is unknown or missing (with the nearest valid one), or a value is invalid.
    """
    if isinstance(spec, Latency):
        return spec
    if isinstance(spec, bool) or not isinstance(spec, (int, float, Mapping)):
        raise ConfigError(f"a latency is a number of seconds or a table with a kind, found {spec!r}")
    keys = dict(spec) if isinstance(spec, Mapping) else {"kind": "constant", "seconds": float(spec)}
    kind = str(keys.pop("kind", None))
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"; known: {', '.join(KINDS)}"
        raise ConfigError(f"latency kind {kind!r} is unknown{hint}")
    form: Any = KINDS[kind]
    if kind == Lognormal.kind and {"median_seconds", "sigma"} & keys.keys():
        form = MedianLognormal
    try:
        latency = _adapter(form).validate_python(keys)
    except ValidationError as error:
        raise ConfigError(f"latency of kind {kind!r}: {_first_problem(form, error)}") from None
    return latency.lognormal() if isinstance(latency, MedianLognormal) else latency


@cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def _first_problem(form: type[Any], error: ValidationError) -> str:
    """Return the first problem that a validation found, with the key that it concerns."""
    # A misspelled key is also a missing one; it is named first.
    problem = min(error.errors(), key=lambda problem: problem["type"] != "unexpected_keyword_argument")
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "unexpected_keyword_argument":
        known = [field.name for field in fields(form)]
        return f"no key {key!r}{did_you_mean(key, known) or '; known: ' + ', '.join(known)}"
    if problem["type"] == "missing":
        return f"key {key!r} is missing"
    found = "" if problem["type"] == "value_error" else f", found {problem['input']!r}"
    return f"{key}: {problem['msg'].removeprefix('Value error, ')}{found}".removeprefix(": ")


def describe_kinds() -> list[tuple[str, list[dict[str, str]], str]]:
    """Return each kind with its keys and their meanings (a second set of keys, if there is one), and its meaning."""
    described = []
    for kind, form in KINDS.items():
        forms = [form, MedianLognormal] if form is Lognormal else [form]
        described.append((kind, [_meanings(each) for each in forms], (form.__doc__ or "").partition("\n")[0]))
    return described


def _meanings(form: type[Any]) -> dict[str, str]:
    return {name: str(field.description) for name, field in form.__pydantic_fields__.items()}
