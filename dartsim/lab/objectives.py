"""What a study wants more or less of: figures of a run by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from dartsim.core.errors import ConfigError

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
class Objective:
    """One figure, and which way is better.

    Attributes:
        figure: Its name among a job's figures.
        sign: 1 if more is better, -1 if less is.
    """

    figure: str
    sign: int

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """``maximize`` or ``minimize``."""
        return "maximize" if self.sign > 0 else "minimize"

    def of(self, figures: Mapping[str, Any]) -> float | None:
        """Return its value; None if the run has none."""
        value = figures.get(self.figure)
        return None if value is None else float(value)


def objective(text: str) -> Objective:
    """Return the objective of a figure's name, perhaps with ``:max`` or ``:min`` after it.

    Raises:
        ConfigError: If there is no such figure, with the nearest one.
    """
    name, _, way = text.partition(":")
    if name not in (*MORE, *LESS):
        close = get_close_matches(name, (*MORE, *LESS), 1, 0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"there is no figure {name!r}{hint}; there are: {', '.join((*MORE, *LESS))}")
    if way not in ("", "max", "min"):
        raise ConfigError(f"an objective is written FIGURE, FIGURE:max or FIGURE:min, got {text!r}")
    more = name in MORE if not way else way == "max"
    return Objective(name, 1 if more else -1)
