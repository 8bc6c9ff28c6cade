"""All kinds of faults by name, and what a configuration makes of them: the rates of its profile, with its changes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dartsim.config.schema import FaultsConfig
from dartsim.core.errors import ConfigError
from dartsim.sim.faults.cluster import CLUSTER
from dartsim.sim.faults.kinds import PROFILES, FaultKind, Scope
from dartsim.sim.faults.osworld import OSWORLD
from dartsim.sim.latency import Latency, from_spec

KINDS: Mapping[str, FaultKind] = MappingProxyType({kind.name: kind for kind in (*OSWORLD, *CLUSTER)})
"""Every kind, by name."""

SLOWEST_RATE = 1e-12
"""Rates below it are none."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One fault at a set time.

    Attributes:
        at: When, seconds of loop time.
        seconds: How long it lasts; None: drawn.
        target: Which member of its scope, modulo their number.
        times: Calls that it strikes, if it strikes calls.
    """

    at: float
    seconds: float | None
    target: int
    times: int


@dataclass(frozen=True, slots=True)
class Active:
    """A kind that strikes in a run.

    Attributes:
        kind: Which.
        rate: Share of calls, or number an hour and member of its scope; 0 if it is scheduled only.
        lasts: How long.
        scheduled: Those at set times, in order.
    """

    kind: FaultKind
    rate: float
    lasts: Latency
    scheduled: tuple[Scheduled, ...] = ()


def active_kinds(config: FaultsConfig) -> dict[str, Active]:
    """Return the kinds that strike under a configuration, by name.

    Raises:
        ConfigError: If it names a kind that does not exist, or gives one a rate of the wrong sort.
    """
    for name in (*config.kinds, *(strike.kind for strike in config.schedule)):
        if name not in KINDS:
            raise ConfigError(_unknown(name))
    found: dict[str, Active] = {}
    for name, kind in KINDS.items():
        scheduled = tuple(
            Scheduled(strike.at_seconds, strike.lasts_seconds, strike.target, strike.times)
            for strike in sorted(config.schedule, key=lambda strike: strike.at_seconds)
            if strike.kind == name
        )
        rate = _rate(config, kind)
        if rate > SLOWEST_RATE or scheduled:
            found[name] = Active(kind, rate, _lasts(config, kind), scheduled)
    return found


def _rate(config: FaultsConfig, kind: FaultKind) -> float:
    own = config.kinds.get(kind.name)
    rate = 0.0 if config.profile == "none" else kind.rates[config.profile] * config.scale
    if own is not None:
        wrong, given = (own.per_hour, own.share) if kind.scope is Scope.CALL else (own.share, own.per_hour)
        if wrong is not None:
            wanted, unwanted = ("share", "per_hour") if kind.scope is Scope.CALL else ("per_hour", "share")
            raise ConfigError(
                f"cluster.faults.kinds.{kind.name}.{unwanted} = {wrong}: this kind strikes by {kind.unit}; "
                f"give {wanted} instead"
            )
        rate = rate if given is None else given
    return min(rate, 1.0) if kind.scope is Scope.CALL else rate


def _lasts(config: FaultsConfig, kind: FaultKind) -> Latency:
    own = config.kinds.get(kind.name)
    spec: Any = None if own is None else own.lasts_seconds
    if spec is None:
        return kind.lasts
    try:
        return from_spec(spec)
    except ConfigError as error:
        raise ConfigError(f"cluster.faults.kinds.{kind.name}.lasts_seconds: {error}") from None


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, list(KINDS), n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "see `dartsim faults`."
    return f"cluster.faults: there is no kind of fault {name!r}; {hint}"


def as_data() -> list[dict[str, Any]]:
    """Return the whole table as plain data: one dictionary a kind."""
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
            "what": kind.what,
            "source": kind.source,
        }
        for kind in KINDS.values()
    ]
