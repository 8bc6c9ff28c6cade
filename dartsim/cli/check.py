"""``Check``: one thing that ``dartsim doctor`` looked at, and how it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    MISSING = "missing"
    """Not there, or not enough; something below needs it."""
    OPTIONAL = "optional"
    """Not there; works without it, slower or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What, in a word; the key that ``works`` refers to.
        state: How it is.
        found: What was found, in words.
        type: What to type to get it; empty if there is nothing to do.
    """

    name: str
    state: State
    found: str
    type: str = ""


def installed(package: str) -> str | None:
    """Return the version of a distribution of this environment, or None; it is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
