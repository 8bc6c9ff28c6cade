"""The space of a study: settings of a configuration, each with a range or choices, as Optuna's distributions.

It is written as ``key=RANGE`` entries separated by commas: ``20..80``, ``20..80/10`` (a step), ``1e-3..10:log``,
``drain|keep``.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from dartsim.config import Config
from dartsim.config.settings import check_setting
from dartsim.core.errors import ConfigError

Space = Mapping[str, BaseDistribution]

RANGE = re.compile(r"^(?P<low>[^.:/|]+(?:\.\d+)?)\.\.(?P<high>[^:/|]+?)(?:/(?P<step>[^:|]+))?(?P<log>:log)?$")
MEASURING = ("run.hours", "run.seed", "run.warmup_share", "run.updates")
"""Settings that change the measurement, not the system."""


def read_space(text: str) -> Space:
    """Parse a space.

    Raises:
        ConfigError: If it cannot be read, is empty, or has an unknown setting or an invalid value.
    """
    pairs = list(_entries(text))
    keys = [key for key, _ in pairs]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ConfigError(f"the space names {', '.join(twice)} more than once")
    if measuring := sorted(set(keys) & set(MEASURING)):
        raise ConfigError(
            f"{', '.join(measuring)} cannot be tuned: they say how a run is measured, not how "
            "the system works; see --hours and --seeds"
        )
    return {key: _dimension(key, value) for key, value in pairs}


def base_point(config: Config, space: Space) -> dict[str, Any]:
    """Return the values that a configuration has for the keys of a space, where the space contains them."""
    own = {key: setting_of(config, key) for key in space}
    return {key: value for key, value in own.items() if _holds(space[key], value)}


def setting_of(config: Config, key: str) -> Any:
    """Return a configuration's value of a setting; ``none`` if it is absent."""
    value: Any = config.model_dump()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "none" if value is None else value


def points(space: Space) -> Iterator[dict[str, Any]] | None:
    """Return all points of a space; None if there are infinitely many."""
    axes: list[Any] = []
    for dimension in space.values():
        if isinstance(dimension, CategoricalDistribution):
            axes.append(dimension.choices)
        elif isinstance(dimension, IntDistribution):
            axes.append(range(dimension.low, dimension.high + 1, dimension.step))
        elif isinstance(dimension, FloatDistribution) and dimension.step is not None:
            count = round((dimension.high - dimension.low) / dimension.step) + 1
            axes.append(np.linspace(dimension.low, dimension.high, count).tolist())
        else:
            return None
    return (dict(zip(space, values, strict=True)) for values in itertools.product(*axes))


def _holds(dimension: BaseDistribution, value: Any) -> bool:
    if isinstance(dimension, CategoricalDistribution):
        return value in dimension.choices
    assert isinstance(dimension, IntDistribution | FloatDistribution)
    if isinstance(value, bool) or not isinstance(value, int | float) or not dimension.low <= value <= dimension.high:
        return False
    return dimension.step is None or (value - dimension.low) % dimension.step == 0


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(f"a dimension is written key=low..high or key=one|other, got {part.strip()!r}")
        yield key.strip(), value.strip()


def _dimension(key: str, text: str) -> BaseDistribution:
    if match := RANGE.match(text):
        step = None if match["step"] is None else _number(key, match["step"])
        return _range(key, _number(key, match["low"]), _number(key, match["high"]), step, match["log"] is not None)
    values = [_value(choice.strip()) for choice in text.split("|")]
    if len(values) < 2 or len({str(value) for value in values}) < len(values):
        raise ConfigError(f"{key}: choices are two or more different values, got {values!r}")
    for value in values:
        check_setting(key, value)
    return CategoricalDistribution(tuple(values))


def _range(key: str, low: float, high: float, step: float | None, log: bool) -> BaseDistribution:
    """Return a range with both ends included; of integers if both ends are and the setting takes no fractions."""
    if not low < high:
        raise ConfigError(f"{key} = {low}..{high}: the first has to be the smaller one")
    if step is not None and (log or not 0 < step <= high - low):
        raise ConfigError(f"{key} = {low}..{high}/{step}: a step is above 0, at most the range, and not with :log")
    if log and low <= 0:
        raise ConfigError(f"{key} = {low}..{high}:log: ratios need numbers above 0")
    for number in (low, high):
        check_setting(key, number)
    whole = isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None)
    if whole and (step is not None or not _takes_fractions(key, low)):
        step = int(step or 1)
        return IntDistribution(int(low), int(low) + int(high - low) // step * step, log=log, step=step)
    if step is not None:
        high = low + int((high - low) / step + 1e-9) * step
    return FloatDistribution(float(low), float(high), log=log, step=step)


def _takes_fractions(key: str, low: float) -> bool:
    try:
        check_setting(key, low + 0.5)
    except ConfigError:
        return False
    return True


def _number(key: str, text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text.strip())
        except ValueError:
            continue
    raise ConfigError(f"{key}: {text.strip()!r} is not a number")


def _value(text: str) -> Any:
    """Return a TOML value; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
