"""The kinds of faults (``kinds.toml``, plug-ins): where, to what, how often and for how long; and which are active."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from dartsim.config.schema import FaultsConfig, FaultWindow
from dartsim.core.errors import ConfigError, did_you_mean
from dartsim.core.registry import NamedComponent, component
from dartsim.core.registry import names as registered
from dartsim.sim.latency import Latency, from_spec

E = TypeVar("E", bound=Exception)

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


class Scope(StrEnum):
    """What fails together, and hence the unit of its rate: a share of calls, or a number per hour and member."""

    CALL = "call"
    DESKTOP = "desktop"
    HOST = "host"
    WORKER = "worker"
    CLUSTER = "cluster"


class Effect(StrEnum):
    """What a fault does."""

    FAILS = "fails"
    """The call fails without being carried out, perhaps after a client's timeout."""
    ACK_LOST = "ack_lost"
    """The call completes, but the acknowledgment is lost, so the caller sees a failure."""
    LATER = "later"
    """The call or the message takes this many seconds longer."""
    SLOWER = "slower"
    """The call takes this many times as long."""
    REPEATED = "repeated"
    """The message arrives a second time."""
    LEAKS = "leaks"
    """The desktop releases its resources only later."""
    TORN = "torn"
    """Only part of it is written; it must not be used."""
    LOST = "lost"
    """Running work is lost, and nothing starts there for a while."""
    UNAVAILABLE = "unavailable"
    """Nothing is accepted for a while; a call fails, or waits."""
    SKEWED = "skewed"
    """The host's clock is off; beyond the length of a lease, its desktops look abandoned and are removed."""


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
    real_test: str = ""

    @property
    def unit(self) -> str:
        """The unit of its rate."""
        return "calls" if self.scope is Scope.CALL else f"{self.scope}-hours"

    def error(self, error: type[E], during: str = "", cause: str = "") -> E:
        """Return an error that names the fault and has the cause of the real one, unless another one is given."""
        failure: Any = error(f"{during}{self.description} (injected fault {self.name})")
        if cause or self.cause:
            failure.cause = cause or self.cause
        return cast("E", failure)

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

    The attributes are those of ``FaultKind``; ``lasts`` and ``per_call`` as in a configuration, ``rates`` in the order
    of ``PROFILES``.
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
) -> dict[str, ActiveFault]:
    """Return the kinds of faults that are injected under a configuration, by name.

    Args:
        config: Configured faults.
        more_windows: Windows in addition to the configured ones.

    Raises:
        ConfigError: If it names an unknown kind, or sets a rate in the wrong unit.
    """
    for name in (*config.kinds, *(window.kind for window in config.schedule)):
        if kind_named(name).place in FUZZ_PLACES:
            raise ConfigError(f"cluster.faults: only `dartsim fuzz` injects {name!r}")
    windows = sorted((*config.schedule, *more_windows), key=lambda window: window.at_seconds)
    active: dict[str, ActiveFault] = {}
    for name, kind in fault_kinds().items():
        own = tuple(window for window in windows if window.kind == name)
        rate = _rate(config, kind)
        if (rate > MIN_RATE or own) and kind.place not in FUZZ_PLACES:
            active[name] = ActiveFault(kind, rate, _lasts(config, kind), own)
    return active


def kind_named(name: str) -> FaultKind:
    """Return a kind of fault by name."""
    kinds = fault_kinds()
    if name not in kinds:
        hint = did_you_mean(name, kinds) or "; see `dartsim config --list faults`."
        raise ConfigError(f"cluster.faults: there is no kind of fault {name!r}{hint}")
    return kinds[name]


def _rate(config: FaultsConfig, kind: FaultKind) -> float:
    own = config.kinds.get(kind.name)
    rate = 0.0 if config.profile == "none" else kind.rates[config.profile] * config.scale
    if own is not None:
        wanted, other = ("share", "per_hour") if kind.scope is Scope.CALL else ("per_hour", "share")
        if getattr(own, other) is not None:
            raise ConfigError(
                f"cluster.faults.kinds.{kind.name}.{other}: the rate of this kind counts {kind.unit}; give {wanted} "
                "instead"
            )
        given = getattr(own, wanted)
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
    texts = ("name", "place", "scope", "effect", "cause", "unit", "description", "response", "source")
    return [
        {
            **{text: str(getattr(kind, text)) for text in texts},
            "rates": dict(kind.rates),
            "lasts_seconds_mean": kind.lasts.mean,
        }
        for kind in fault_kinds().values()
    ]
