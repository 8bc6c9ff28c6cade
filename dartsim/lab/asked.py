"""What a study is asked, and in what two questions differ."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dartsim.config import Config, to_toml
from dartsim.lab.costs import GPU_HOURS, Prices
from dartsim.lab.objectives import Objective
from dartsim.lab.space import Space

Sampler = Literal["tpe", "random", "qmc", "nsga2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a study is asked.

    Attributes:
        base: The configuration that is tuned.
        space: What may change.
        objectives: What is wanted, the first one most.
        seeds: Seeds that every trial is simulated with.
        sampler: How settings are proposed.
        seed: Of the proposals.
        batch: Trials proposed at a time.
        prune: Whether trials are given up early; only with one objective.
        max_staleness: Largest staleness that a solution may show; None for no bound.
        max_cost: Largest cost an hour; None for no bound.
        prices: What machines cost.
    """

    base: Config
    space: Space
    objectives: tuple[Objective, ...]
    seeds: tuple[int, ...] = (0,)
    sampler: Sampler = "tpe"
    seed: int = 0
    batch: int = 8
    prune: bool = True
    max_staleness: float | None = None
    max_cost: float | None = None
    prices: Prices = GPU_HOURS

    def as_text(self) -> dict[str, str]:
        """Return all that must not change between two parts of one study."""
        return {
            "configuration": to_toml(self.base),
            "--space": ", ".join(f"{dimension.key}={dimension.text()}" for dimension in self.space),
            "--objective": ", ".join(f"{wanted.figure}:{wanted.direction}" for wanted in self.objectives),
            "--seeds": str(self.seeds),
            "--sampler": self.sampler,
            "--seed": str(self.seed),
            "--batch": str(self.batch),
            "--prune": str(self.prune),
            "--max-staleness": str(self.max_staleness),
            "--max-cost": str(self.max_cost),
            "prices": str(self.prices),
        }


def difference(name: str, old: Any, new: str) -> str:
    """Say in words what was asked then and what is asked now."""
    if name == "configuration" and old is not None:
        return f"another configuration: {_first_change(str(old), new)}"
    then, now = (_asked_words(name, text) for text in (old, new))
    return f"{name}: {then} then, {now} now"


def _asked_words(name: str, text: Any) -> str:
    """Return one part of a question, as kept in the database, as a user would say it."""
    if text is None or text == "None":
        return "none"
    if name == "--prune":
        return "on" if text == "True" else "off (--no-prune)"
    if name == "--seeds":
        return str(str(text).count(",") + (not str(text).endswith(",)")))
    if name == "--objective":
        return str(text).replace(":maximize", ":max").replace(":minimize", ":min")
    if name == "prices":
        gpu, host = re.findall(r"=([^,)]+)", str(text))
        return f"{gpu} a GPU hour and {host} a host hour"
    return str(text)


def _first_change(old: str, new: str) -> str:
    """Return the first setting in which two configurations, as TOML, differ."""
    then, now = (dict(_flat(tomllib.loads(text), "")) for text in (old, new))
    for key in dict.fromkeys((*then, *now)):
        if then.get(key) != now.get(key):
            return f"{key} {then.get(key, 'absent')} then, {now.get(key, 'absent')} now"
    return "written otherwise"


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
