"""``StudySpec``: a base configuration, a space of settings, objectives and seeds; and how two specs differ."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dartsim.config import Config, to_toml
from dartsim.core.errors import ConfigError, no_such
from dartsim.lab.jobs import GPU_HOURS, Prices
from dartsim.lab.space import Space

Sampler = Literal["tpe", "random", "qmc", "nsga2"]


MORE = (
    "trained_turns_per_minute",
    "signal_turns_per_minute",
    "admitted_turns_per_minute",
    "generated_turns_per_minute",
    "steady_turns_per_minute",
    "trajectories_per_minute",
    "env_utilization",
    "gpu_utilization",
    "gpu_utilization_rollout_phase",
    "gpu_peak_share",
)
LESS = (
    "cost_per_hour",
    "cost_per_1000_turns",
    "staleness_mean",
    "staleness_max",
    "wasted_share",
    "minutes_per_version",
)


@dataclass(frozen=True, slots=True)
class StudyObjective:
    """A figure of a job, and its sign: 1 if more is better, -1 if less is."""

    figure: str
    sign: int

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """The word that Optuna uses."""
        return "maximize" if self.sign > 0 else "minimize"

    def of(self, figures: Mapping[str, Any]) -> float | None:
        value = None if figures.get("failure") else figures.get(self.figure)
        return None if value is None else float(value)


def read_objective(text: str) -> StudyObjective:
    """Parse an objective: a figure's name, optionally followed by ``:max`` or ``:min``.

    Raises:
        ConfigError: If there is no such figure; names the nearest one.
    """
    name, _, direction = text.partition(":")
    known = (*MORE, *LESS)
    if name not in known:
        raise no_such("figure", name, known)
    if direction not in ("", "max", "min"):
        raise ConfigError(f"an objective is written FIGURE, FIGURE:max or FIGURE:min, got {text!r}")
    more = name not in LESS if not direction else direction == "max"
    return StudyObjective(name, 1 if more else -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """What a study searches for.

    Attributes:
        base: The configuration that is tuned.
        space: What may change.
        objectives: The most important one first.
        seeds: Seeds of every trial.
        sampler: How settings are proposed.
        seed: Of the proposals.
        batch: Trials proposed at a time.
        prune: Whether trials below the median are stopped early; only with one objective.
        max_staleness: Largest allowed staleness; None for no bound.
        max_cost: Largest allowed cost per hour; None for no bound.
        prices: Prices of the machines.
    """

    base: Config
    space: Space
    objectives: tuple[StudyObjective, ...]
    seeds: tuple[int, ...] = (0,)
    sampler: Sampler = "tpe"
    seed: int = 0
    batch: int = 8
    prune: bool = True
    max_staleness: float | None = None
    max_cost: float | None = None
    prices: Prices = GPU_HOURS

    def as_text(self) -> dict[str, str]:
        """Return what must stay the same when a study is resumed."""
        return {
            "configuration": to_toml(self.base),
            "--space": ", ".join(f"{dimension.key}={dimension.text()}" for dimension in self.space),
            "--objective": ", ".join(f"{objective.figure}:{objective.direction}" for objective in self.objectives),
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
    """Describe how one entry of ``StudySpec.as_text`` changed."""
    if name == "configuration" and old is not None:
        return f"another configuration: {_first_change(str(old), new)}"
    return f"{name}: {_as_option(name, old)} then, {_as_option(name, new)} now"


def _as_option(name: str, text: Any) -> str:
    """Return an entry as a user writes it on the command line."""
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
    """Return the first setting in which two configurations (TOML) differ."""
    then, now = (dict(_flat(tomllib.loads(text), "")) for text in (old, new))
    for key in dict.fromkeys((*then, *now)):
        if then.get(key) != now.get(key):
            return f"{key} {then.get(key, 'absent')} then, {now.get(key, 'absent')} now"
    return "the same settings in another form"


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
