"""The space of a study: settings of a configuration, each with a range or choices.

As text, ``key=RANGE`` entries separated by commas: ``20..80``, ``20..80/10`` (a step), ``1e-3..10:log``,
``drain|keep``. As a TOML file, the same keys as a configuration, with such a text, a list of choices, or a table with
``low``, ``high`` and perhaps ``step`` or ``log``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.config.load import check_setting
from dartsim.core.errors import ConfigError

Value = int | float | str | bool

RANGE = re.compile(r"^(?P<low>[^.:/|]+(?:\.\d+)?)\.\.(?P<high>[^:/|]+?)(?:/(?P<step>[^:|]+))?(?P<log>:log)?$")
TABLE = {"low", "high", "step", "log"}
MEASURING = ("run.hours", "run.seed", "run.warmup_share", "run.updates")
"""Settings of the measurement, which do not change the system."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones if both are and the setting wants no others."""

    key: str
    low: float
    high: float
    step: float | None = None
    log: bool = False

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def text(self) -> str:
        step = "" if self.step is None else f"/{self.step!r}"
        return f"{self.low!r}..{self.high!r}{step}{':log' if self.log else ''}"


@dataclass(frozen=True, slots=True)
class Choices:
    """Two or more values of a setting."""

    key: str
    values: tuple[Value, ...]

    def text(self) -> str:
        return "|".join(str(value).lower() if isinstance(value, bool) else str(value) for value in self.values)


Dimension = Range | Choices
Space = tuple[Dimension, ...]


def read_space(given: str) -> Space:
    """Parse a space, or the TOML file of that name.

    Raises:
        ConfigError: If it cannot be read, is empty, or has an unknown setting or an invalid value.
    """
    pairs = list(_of_file(Path(given)) if given.endswith(".toml") else _of_text(given))
    if not pairs:
        raise ConfigError("the space is empty: nothing could be tuned; write key=low..high or key=one|other")
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigError(f"the space names {', '.join(twice)} more than once")
    measuring = sorted(set(keys) & set(MEASURING))
    if measuring:
        raise ConfigError(
            f"{', '.join(measuring)} cannot be tuned: they say how a run is measured, not how "
            "the system works; see --hours and --seeds"
        )
    return tuple(_dimension(key, value) for key, value in pairs)


def setting_of(config: Config, key: str) -> Any:
    """Return a configuration's value of a setting; ``none`` if it is absent."""
    value: Any = config.model_dump()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "none" if value is None else value


def _of_text(text: str) -> Iterator[tuple[str, Any]]:
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(f"a dimension is written key=low..high or key=one|other, got {part.strip()!r}")
        yield key.strip(), value.strip()


def _of_file(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"the space {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    yield from _leaves(tree, "")


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and not ({"low", "high"} <= set(value)):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _dimension(key: str, value: Any) -> Dimension:
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - TABLE)
        if unknown:
            raise ConfigError(f"{key}: unknown {', '.join(unknown)}; a range has {', '.join(sorted(TABLE))}")
        return _range(key, value["low"], value["high"], value.get("step"), bool(value.get("log", False)))
    if isinstance(value, list):
        return _choices(key, value)
    match = RANGE.match(value) if isinstance(value, str) else None
    if match:
        numbers = (None if match[name] is None else _number(key, match[name]) for name in ("low", "high", "step"))
        low, high, step = numbers
        return _range(key, low, high, step, match["log"] is not None)
    return _choices(key, [_value(text.strip()) for text in str(value).split("|")])


def _range(key: str, low: Any, high: Any, step: Any, log: bool) -> Range:
    numbers = [number for number in (low, high, step) if number is not None]
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        raise ConfigError(f"{key}: a range has numbers, got {low!r}..{high!r}")
    if not low < high:
        raise ConfigError(f"{key} = {low}..{high}: the first has to be the smaller one")
    if step is not None and (log or not 0 < step <= high - low):
        raise ConfigError(f"{key} = {low}..{high}/{step}: a step is above 0, at most the range, and not with :log")
    if log and low <= 0:
        raise ConfigError(f"{key} = {low}..{high}:log: ratios need numbers above 0")
    for number in (low, high):
        check_setting(key, number)
    whole = all(isinstance(number, int) for number in numbers)
    if whole and (step is not None or not _takes_fractions(key, low, high)):
        return Range(key, low, high, step, log)
    return Range(key, float(low), float(high), None if step is None else float(step), log)


def _takes_fractions(key: str, low: int, high: int) -> bool:
    try:
        check_setting(key, (low + high) / 2 if (low + high) % 2 else low + 0.5)
    except ConfigError:
        return False
    return True


def _choices(key: str, values: list[Any]) -> Choices:
    if len(values) < 2 or len({str(value) for value in values}) < len(values):
        raise ConfigError(f"{key}: choices are two or more different values, got {values!r}")
    for value in values:
        check_setting(key, value)
    return Choices(key, tuple(values))


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
