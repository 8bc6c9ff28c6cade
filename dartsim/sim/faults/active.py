"""Which kinds of faults are active under a configuration, at which rates and in which windows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dartsim.config.schema import FaultsConfig, FaultWindow
from dartsim.core.errors import ConfigError
from dartsim.sim.faults.kinds import FUZZ_PLACES, KINDS, PROFILES, FaultKind, Scope
from dartsim.sim.latency import Latency, from_spec

MIN_RATE = 1e-12
"""Lower rates count as none."""


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A kind of fault that is injected in a run.

    Attributes:
        kind: Which.
        rate: Share of calls, or number per hour and member of its scope; 0 if it has windows only.
        lasts: How long.
        windows: Those at set times, in order.
    """

    kind: FaultKind
    rate: float
    lasts: Latency
    windows: tuple[FaultWindow, ...] = ()


def active_faults(config: FaultsConfig, more_windows: Iterable[FaultWindow] = ()) -> dict[str, ActiveFault]:
    """Return the kinds of faults that are injected under a configuration, by name.

    Raises:
        ConfigError: If it names a kind that does not exist, or gives one a rate of the wrong sort.
    """
    for name in (*config.kinds, *(window.kind for window in config.schedule)):
        if kind_named(name).place in FUZZ_PLACES:
            raise ConfigError(f"cluster.faults: only `dartsim fuzz` injects {name!r}")
    windows = sorted((*config.schedule, *more_windows), key=lambda window: window.at_seconds)
    found: dict[str, ActiveFault] = {}
    for name, kind in KINDS.items():
        own = tuple(window for window in windows if window.kind == name)
        rate = _rate(config, kind)
        if (rate > MIN_RATE or own) and kind.place not in FUZZ_PLACES:
            found[name] = ActiveFault(kind, rate, _lasts(config, kind), own)
    return found


def kind_named(name: str) -> FaultKind:
    """Return a kind of fault."""
    if name not in KINDS:
        close = difflib.get_close_matches(name, list(KINDS), n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else "see `dartsim faults`."
        raise ConfigError(f"cluster.faults: there is no kind of fault {name!r}; {hint}")
    return KINDS[name]


def _rate(config: FaultsConfig, kind: FaultKind) -> float:
    own = config.kinds.get(kind.name)
    rate = 0.0 if config.profile == "none" else kind.rates[config.profile] * config.scale
    if own is not None:
        wrong, given = (own.per_hour, own.share) if kind.scope is Scope.CALL else (own.share, own.per_hour)
        if wrong is not None:
            wanted, unwanted = ("share", "per_hour") if kind.scope is Scope.CALL else ("per_hour", "share")
            raise ConfigError(
                f"cluster.faults.kinds.{kind.name}.{unwanted} = {wrong}: the rate of this kind counts {kind.unit}; "
                f"give {wanted} instead"
            )
        rate = rate if given is None else given
    return min(rate, 1.0) if kind.scope is Scope.CALL else rate


def _lasts(config: FaultsConfig, kind: FaultKind) -> Latency:
    own = config.kinds.get(kind.name)
    if own is None or own.lasts_seconds is None:
        return kind.lasts
    try:
        return from_spec(own.lasts_seconds)
    except ConfigError as error:
        raise ConfigError(f"cluster.faults.kinds.{kind.name}.lasts_seconds: {error}") from None


def as_data() -> list[dict[str, Any]]:
    """Return the whole table as plain data: one dictionary per kind."""
    return [
        {
            "name": kind.name,
            "number": kind.number or None,
            "place": kind.place.value,
            "effect": kind.effect.value,
            "cause": kind.cause or None,
            "correlation": kind.correlation,
            "unit": kind.unit,
            "rates": {profile: kind.rates[profile] for profile in PROFILES},
            "lasts_seconds_mean": kind.lasts.mean,
            "description": kind.description,
            "source": kind.source,
        }
        for kind in KINDS.values()
    ]
