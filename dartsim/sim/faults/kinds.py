"""Kinds of faults as data: what goes wrong, where it strikes, how often, for how long, what is seen of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dartsim.sim.latency import Constant, Latency, Lognormal, Quantiles

PROFILES = ("calm", "osworld", "hostile")
"""Named rates of all kinds; ``none`` has none of them."""


class Place(StrEnum):
    """Where a fault strikes."""

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
    Place.MESSAGE: "messages",
}
"""What single calls are called, by the place where they are struck."""


class Scope(StrEnum):
    """What is struck together, and so what a rate is counted by."""

    CALL = "call"
    """One call; its rate is a share of the calls. All others have a rate an hour, of each member."""
    DESKTOP = "desktop"
    HOST = "host"
    WORKER = "worker"
    LEARNER = "learner"
    PAIR = "pair"
    """One pair of parts that talk to each other; the rate is the cluster's."""
    CLUSTER = "cluster"


CORRELATION = {Scope.HOST: "per host", Scope.CLUSTER: "whole cluster"}
"""What fails together; everything else fails by itself."""


class Effect(StrEnum):
    """What it does to what it strikes."""

    FAILS = "fails"
    """The call fails, after a time that may be that of a client which gives up waiting."""
    LATER = "later"
    """The call takes so many seconds more."""
    SLOWER = "slower"
    """The call takes so many times as long."""
    LEAKS = "leaks"
    """What the desktop holds is given back later."""
    LOST = "lost"
    """All that is there is gone, and nothing starts there for a while."""
    SKEWED = "skewed"
    """The host's clock is off; past the length of a lease, its desktops look abandoned and are removed."""
    CRASHES = "crashes"
    """What runs is lost; serves nothing until it is up again."""
    REFUSES = "refuses"
    """What runs is thrown out, and nothing is taken for a while."""
    TORN = "torn"
    """Half of it is written; nobody may use it."""
    UNHEARD = "unheard"
    """It was done, and nobody heard of it."""
    AWAY = "away"
    """Not there for a while."""
    STALLS = "stalls"
    """All that depends on it stands still for a while."""
    ENDS = "ends"
    """The run ends, with a message that says what to do."""
    CUT = "cut"
    """No message passes for a while."""
    DELAYED = "delayed"
    """A message takes longer."""
    DROPPED = "dropped"
    """A message is lost, and sent again after a while."""
    TWICE = "twice"
    """A message arrives a second time."""
    OVERTAKEN = "overtaken"
    """A message is held back behind later ones."""


NOTHING = Constant(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        name: By which its strikes are counted: ``fault/<name>``.
        place: Where it strikes.
        scope: What it strikes together.
        effect: What it does.
        cause: The word that the control plane counts for it, the same as for the real fault; empty if it sees none.
        lasts: Seconds: of a struck call until it fails or beyond its own time; else of the whole spell.
        call: Of a spell, what it means for each call: seconds, a factor, or seconds of skew.
        rates: By profile: a share of calls, or an hour and member of its scope.
        what: What happens, in words.
        source: Where it is known from.
        number: Its number in the reference list of OSWorld's faults, or 0.
    """

    name: str
    place: Place
    scope: Scope
    effect: Effect
    cause: str
    lasts: Latency
    rates: Mapping[str, float]
    what: str
    source: str
    call: Latency = NOTHING
    number: int = 0

    @property
    def correlation(self) -> str:
        """What fails together."""
        return CORRELATION.get(self.scope, "independent")

    @property
    def unit(self) -> str:
        """What its rate is a share of, or a number in one of."""
        if self.scope is Scope.CALL:
            return CALLS[self.place]
        return f"{self.scope if self.scope is not Scope.PAIR else Scope.CLUSTER}-hours"


def rates(calm: float, osworld: float, hostile: float) -> Mapping[str, float]:
    """Return rates by profile."""
    return dict(zip(PROFILES, (calm, osworld, hostile), strict=True))


def about(mean_seconds: float, sd_seconds: float | None = None) -> Latency:
    """Return a lognormal around a mean; its standard deviation is the mean's half if none is given."""
    return Lognormal(mean_seconds, mean_seconds / 2 if sd_seconds is None else sd_seconds)


def between(low: float, high: float) -> Latency:
    """Return the uniform distribution between two numbers."""
    return Quantiles(((0.0, low), (1.0, high)))
