"""``Case``: all that decides one run of the search, and the token that it is written as."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from dartsim.core.errors import ConfigError

FORMAT = 3
"""Newest format of tokens; a newer one is refused. In format 1 the process and its store have no faults; before format
3, slots that wait add no attempts, and drawn schedulers have DART's rules alone."""

SINCE: Mapping[int, frozenset[str]] = {
    2: frozenset(("killed", "killed_before_commit", "killed_after_commit", "store_error", "store_full", "store_stall")),
    3: frozenset(("admission", "further", "in_turn", "order", "wait_age"))
    | frozenset(("publish_every", "publish_wait", "requeue", "cancel_stale")),
}
"""Kinds of faults and names of choices by the first format that has them."""

Choice = str | int | float | bool | None


class Fault(NamedTuple):
    """One thing that goes wrong.

    Attributes:
        kind: A key of ``dartsim.fuzz.faults.KINDS``.
        start: Virtual time from which on it holds, seconds.
        seconds: How long it holds.
        target: Which part it strikes, counted around; None: all of its kind.
    """

    kind: str
    start: int
    seconds: int
    target: int | None = None

    @property
    def end(self) -> int:
        """Virtual time at which it is over, seconds."""
        return self.start + self.seconds


@dataclass(frozen=True)
class Case:
    """One run: a preset, what of the cluster differs from the simplest one, faults, and a seed.

    Attributes:
        preset: Whose scheduler it is, or ``dartsim.fuzz.space.DRAWN``: then the scheduler is among the choices.
        seed: Decides every latency, outcome and order of the run.
        choices: By the name of the dimension; what is left out is the dimension's simplest value.
        faults: In no particular order.
        profile: Faults drawn at rates, all along until they are healed: a value of ``cluster.faults.profile``.
    """

    preset: str
    seed: int
    choices: Mapping[str, Choice] = field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[Fault, ...] = ()
    profile: str = "none"

    def token(self) -> str:
        """Return it as one word that ``from_token`` reads, in the oldest format that can say it."""
        names = {fault.kind for fault in self.faults} | self.choices.keys()
        tree = {
            "format": max((number for number, since in SINCE.items() if names & since), default=1),
            "preset": self.preset,
            "seed": self.seed,
            "choices": dict(self.choices),
            "faults": self.faults,
            "profile": self.profile,
        }
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
        return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def from_token(token: str) -> Case:
    """Return the case that a token stands for.

    Raises:
        ConfigError: If it is not a token of this format.
    """
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        tree: dict[str, Any] = json.loads(zlib.decompress(data))
        if tree["format"] not in range(1, FORMAT + 1):
            raise ConfigError(
                f"the token has format {tree['format']!r}, this dartsim reads 1 to {FORMAT}; replay it with the "
                "version that printed it"
            )
        faults = tuple(Fault(*fault) for fault in tree["faults"])
        return Case(tree["preset"], tree["seed"], tree["choices"], faults, tree["profile"])
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{token[:40]!r} is not a token of `dartsim fuzz`; give the whole word that it printed"
        ) from None
