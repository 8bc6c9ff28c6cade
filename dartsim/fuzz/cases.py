"""``Case``: everything that determines one run of the search, and its token."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dartsim.config.schema import FaultWindow
from dartsim.core.errors import ConfigError

FORMAT = 6
"""Format of tokens; others are refused."""

Choice = str | int | float | bool | None


def fault_window(kind: str, at_seconds: float, lasts_seconds: float, target: int | None = None) -> FaultWindow:
    """Return a window that affects every call of its target, or of all targets."""
    return FaultWindow(kind=kind, at_seconds=at_seconds, lasts_seconds=lasts_seconds, target=target, times=None)


@dataclass(frozen=True)
class Case:
    """One run: a preset, differences from the simplest cluster, faults, and a seed.

    Attributes:
        preset: Its scheduler, or ``dartsim.fuzz.space.DRAWN`` if the choices contain the scheduler.
        seed: Seed of every latency, outcome and order.
        choices: Value of each dimension; missing dimensions have their simplest value.
        faults: Fault windows, in any order; see ``fault_window``.
        profile: Fault rates until all faults end: a value of ``cluster.faults.profile``.
    """

    preset: str
    seed: int
    choices: Mapping[str, Choice] = field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[FaultWindow, ...] = ()
    profile: str = "none"

    def token(self) -> str:
        """Return the case as one word for ``from_token``."""
        tree = {
            "format": FORMAT,
            "preset": self.preset,
            "seed": self.seed,
            "choices": dict(self.choices),
            "faults": [[fault.kind, fault.at_seconds, fault.lasts_seconds, fault.target] for fault in self.faults],
            "profile": self.profile,
        }
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
        return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def from_token(token: str) -> Case:
    """Return the case of a token.

    Raises:
        ConfigError: If it is not a token of this format.
    """
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        tree: dict[str, Any] = json.loads(zlib.decompress(data))
        if tree["format"] != FORMAT:
            raise ConfigError(
                f"the token has format {tree['format']!r}, this dartsim reads {FORMAT}; "
                "replay it with the version that printed it"
            )
        faults = tuple(fault_window(*fault) for fault in tree["faults"])
        return Case(tree["preset"], tree["seed"], tree["choices"], faults, tree["profile"])
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{token[:40]!r} is not a token of `dartsim fuzz`; give the whole word that it printed"
        ) from None
