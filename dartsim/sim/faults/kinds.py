"""The kinds of faults (``kinds.toml``, plug-ins): where, to what, how often and for how long; and which are active."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dartsim.config.schema import FaultsConfig, FaultWindow
from dartsim.core.errors import ConfigError, did_you_mean
from dartsim.core.registry import NamedComponent, component
from dartsim.core.registry import names as registered
from dartsim.sim.latency import Latency, from_spec

PROFILES = ("calm", "osworld", "hostile")
"""Named sets of rates for all kinds; ``none`` has no faults."""


class Place(StrEnum):
    """Where a fault is injected."""

    START = "desktop.start"
    SETUP = "desktop.setup"
    STEP = "desktop.step"
    SCREENSHOT = "desktop.screenshot"
    SCORE = "desktop.score"
    CLOSE = "desktop.teardown"
    DESKTOP = "desktop"
    HOST = "host"
    REQUEST = "worker.request"
    WORKER = "worker"
    LOAD = "worker.load"
    UPDATE = "learner.update"
    LEARNER = "learner"
    STORE = "store"
    NETWORK = "network"
    MESSAGE = "message"
    PUBLICATION = "publication"
    PROCESS = "process"


FUZZ_PLACES = frozenset({Place.PUBLICATION, Place.PROCESS})
"""Places where only ``dartsim fuzz`` injects faults, because it can kill the run's process and resume it."""

CALLS = {
    Place.START: "starts",
    Place.SETUP: "set-ups",
    Place.STEP: "actions",
    Place.SCREENSHOT: "screenshots",
    Place.SCORE: "scores",
    Place.CLOSE: "tear-downs",
    Place.REQUEST: "requests",
    Place.LOAD: "loads",
    Place.UPDATE: "updates",
    Place.STORE: "transactions",
    Place.MESSAGE: "messages",
    Place.PUBLICATION: "publications",
    Place.PROCESS: "transactions",
}
"""The calls at a place, in the plural."""


class Scope(StrEnum):
    """What one fault affects, and hence the unit of its rate."""

    CALL = "call"
    """One call; the rate is a share of calls. All others have a rate per hour and member."""
    DESKTOP = "desktop"
    HOST = "host"
    WORKER = "worker"
    LEARNER = "learner"
    PAIR = "pair"
    """One pair of communicating components; the rate is for the whole cluster."""
    CLUSTER = "cluster"


CORRELATION = {Scope.HOST: "per host", Scope.CLUSTER: "whole cluster"}
"""What fails together; everything else fails independently."""


class Effect(StrEnum):
    """What a fault does."""

    FAILS = "fails"
    """The call fails without being carried out, perhaps after a client's timeout."""
    ACK_LOST = "ack_lost"
    """The call completes, but the acknowledgment is lost, so the caller sees a failure."""
    LATER = "later"
    """The call takes this many seconds longer."""
    SLOWER = "slower"
    """The call takes this many times as long."""
    LEAKS = "leaks"
    """The desktop releases its resources only later."""
    LOST = "lost"
    """Everything there is lost, and nothing starts there for a while."""
    SKEWED = "skewed"
    """The host's clock is off; beyond the length of a lease, its desktops look abandoned and are removed."""
    CRASHES = "crashes"
    """Running work is lost; the component serves nothing until it is up again."""
    REFUSES = "refuses"
    """Running work is aborted, and nothing is accepted for a while."""
    TORN = "torn"
    """Only part of it is written; it must not be used."""
    UNAVAILABLE = "unavailable"
    """The component is unavailable for a while."""
    STALLS = "stalls"
    """Everything that depends on it waits for a while."""
    ENDS = "ends"
    """The run ends, with a message that says what to do."""
    PARTITIONED = "partitioned"
    """No message passes for a while."""
    DELAYED = "delayed"
    """A message takes longer."""
    DROPPED = "dropped"
    """A message is lost, and sent again after a while."""
    DUPLICATED = "duplicated"
    """A message arrives a second time."""
    REORDERED = "reordered"
    """A message is overtaken by later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        name: Its injections are counted as ``fault/<name>``.
        place: Where it is injected.
        scope: The components that one fault affects together.
        effect: What it does.
        lasts: Seconds until an affected call fails or that it takes longer; or the length of a window of faults.
        per_call: What a window means for each call in it: seconds, a factor, or seconds of skew.
        rates: By profile: a share of calls, or a number per hour and member of its scope.
        description: What happens.
        response: What the control plane does.
        source: Evidence that it happens.
        cause: The cause that the control plane counts, as for the real fault; empty if it sees none.
        number: Its number in the reference list of OSWorld's faults, or 0.
        real_test: The test in tests/real that causes it in real components; empty if there is none.
    """

    name: str
    place: Place
    scope: Scope
    effect: Effect
    lasts: Latency
    per_call: Latency
    rates: Mapping[str, float]
    description: str
    source: str
    response: str = ""
    cause: str = ""
    number: int = 0
    real_test: str = ""

    @property
    def correlation(self) -> str:
        """Which components fail together."""
        return CORRELATION.get(self.scope, "independent")

    @property
    def unit(self) -> str:
        """The unit of its rate: calls, or hours of one member of its scope."""
        if self.scope is Scope.CALL:
            return CALLS[self.place]
        return f"{self.scope if self.scope is not Scope.PAIR else Scope.CLUSTER}-hours"

    @classmethod
    def from_row(cls, name: str, row: Mapping[str, Any]) -> FaultKind:
        """Return the kind described by a row of ``kinds.toml``."""
        defaults = {"scope": "call", "effect": "fails", "per_call": 0.0, "rates": (0.0,) * len(PROFILES)}
        fields = {**defaults, **row}
        fields |= {key: from_spec(fields[key]) for key in ("lasts", "per_call")}
        fields |= {"place": Place(fields["place"]), "scope": Scope(fields["scope"]), "effect": Effect(fields["effect"])}
        fields["rates"] = MappingProxyType(dict(zip(PROFILES, fields["rates"], strict=True)))
        return cls(name=name, **fields)


KINDS: Mapping[str, FaultKind] = MappingProxyType(
    {
        name: FaultKind.from_row(name, row)
        for name, row in tomllib.loads(Path(__file__).with_name("kinds.toml").read_text(encoding="utf-8")).items()
    }
)
"""The built-in kinds of faults, by name."""


class Fault(NamedComponent):
    """A kind of fault of a plug-in, registered as ``@register("fault", NAME)``.

    ``cluster.faults.kinds.NAME`` sets its rate, ``cluster.faults.schedule`` opens windows of it, as for any other kind.
    Its docstring says what happens.

    Attributes:
        place: Where it is injected: a ``Place``, such as ``"desktop.step"`` or ``"worker.request"``.
        scope: The components that one fault affects together: a ``Scope``.
        effect: What it does: an ``Effect``.
        lasts: Seconds, or a distribution as in a configuration; see ``FaultKind``.
        per_call: Seconds or a factor, or a distribution; see ``FaultKind``.
        rates: Rates in the profiles calm, osworld and hostile; see ``FaultKind``.
        cause: The cause that masked attempts are counted by; empty if the control plane sees no fault.
        source: Evidence that it happens.
    """

    place: str
    scope: str = "call"
    effect: str = "fails"
    lasts: Any = 0.0
    per_call: Any = 0.0
    rates: tuple[float, float, float] = (0.0, 0.0, 0.0)
    cause: str = ""
    source: str = "a plug-in"

    def kind(self, name: str) -> FaultKind:
        """Return the kind that the attributes describe.

        Raises:
            ConfigError: If an attribute is invalid.
        """
        fields = ("place", "scope", "effect", "lasts", "per_call", "rates", "cause", "source")
        try:
            row = {field: getattr(self, field) for field in fields}
            return FaultKind.from_row(name, {**row, "description": (self.__doc__ or "").partition("\n")[0].rstrip(".")})
        except (AttributeError, ValueError) as error:
            raise ConfigError(f"the fault {name!r}, {type(self).__qualname__}, cannot be used: {error}") from None


def fault_kinds() -> dict[str, FaultKind]:
    """Return every kind of fault, including those of plug-ins, by name.

    Raises:
        ConfigError: If a plug-in's kind is invalid.
    """
    return {**KINDS, **{name: component("fault", name).kind(name) for name in registered("fault")}}


MIN_RATE = 1e-12
"""Lower rates count as 0."""


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A kind of fault that is injected in a run."""

    kind: FaultKind
    rate: float
    lasts: Latency
    windows: tuple[FaultWindow, ...] = ()


def active_faults(
    config: FaultsConfig,
    more_windows: Iterable[FaultWindow] = (),
    kinds: Mapping[str, FaultKind] | None = None,
) -> dict[str, ActiveFault]:
    """Return the kinds of faults that are injected under a configuration, by name.

    Args:
        config: Configured faults.
        more_windows: Windows in addition to the configured ones.
        kinds: The kinds to choose from; default: all.

    Raises:
        ConfigError: If it names an unknown kind, or sets a rate in the wrong unit.
    """
    kinds = fault_kinds() if kinds is None else kinds
    for name in (*config.kinds, *(window.kind for window in config.schedule)):
        if kind_named(name, kinds).place in FUZZ_PLACES:
            raise ConfigError(f"cluster.faults: only `dartsim fuzz` injects {name!r}")
    windows = sorted((*config.schedule, *more_windows), key=lambda window: window.at_seconds)
    active: dict[str, ActiveFault] = {}
    for name, kind in kinds.items():
        own = tuple(window for window in windows if window.kind == name)
        rate = _rate(config, kind)
        if (rate > MIN_RATE or own) and kind.place not in FUZZ_PLACES:
            active[name] = ActiveFault(kind, rate, _lasts(config, kind), own)
    return active


def kind_named(name: str, kinds: Mapping[str, FaultKind] | None = None) -> FaultKind:
    """Return a kind of fault by name; ``kinds`` defaults to all."""
    kinds = fault_kinds() if kinds is None else kinds
    if name not in kinds:
        hint = did_you_mean(name, kinds) or "; see `dartsim config --list faults`."
        raise ConfigError(f"cluster.faults: there is no kind of fault {name!r}{hint}")
    return kinds[name]


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
            "response": kind.response,
            "source": kind.source,
        }
        for kind in fault_kinds().values()
    ]
