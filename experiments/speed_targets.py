"""What the simulator's speed is wanted to be, and how each target is read from the figures of the speed benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from experiments.study import Figures, Rows, rows_of


class SpeedTarget(NamedTuple):
    """A figure and its bound: at most ``limit``, or at least if ``at_least``; None: this form has no such figure."""

    figure: str
    limit: float
    measured: Callable[[Figures], float | None]
    at_least: bool = False


def _row(figures: Figures, num_envs: int) -> Figures:
    return next(row for row in figures["turns"] if row["num_envs"] == num_envs)


def _over_bare(figures: Figures, num_envs: int, column: str) -> float:
    row = _row(figures, num_envs)
    return float(row[column] / row["bare_simpy_cpu_us_per_turn"])


def _compiled_over_bare(num_envs: int) -> Callable[[Figures], float | None]:
    return lambda figures: _over_bare(figures, num_envs, "cpu_us_per_turn") if figures["compiled"] else None


def _until_steady(figures: Figures) -> float | None:
    """Return what a run took until it was steady; of one that never was, if the target is missed already."""
    run, limit = figures["until_steady"], 30.0
    return float(run["cpu_seconds"]) if run["steady"] or run["cpu_seconds"] > limit else None


TARGETS = (
    SpeedTarget("full system over bare SimPy, 80 desktops, compiled", 0.7, _compiled_over_bare(80)),
    SpeedTarget("same, pure Python", 1.6, lambda figures: _over_bare(figures, 80, "plain_cpu_us_per_turn")),
    SpeedTarget("same, 5,000 desktops, compiled", 0.8, _compiled_over_bare(5_000)),
    SpeedTarget(
        "a turn at 10,000 desktops over one at 80",
        1.3,
        lambda figures: _row(figures, 10_000)["cpu_us_per_turn"] / _row(figures, 80)["cpu_us_per_turn"],
    ),
    SpeedTarget(
        "1,000 desktops on `osworld`, 24 h, CPU seconds", 130.0, lambda figures: figures["day"]["cpu_seconds_per_day"]
    ),
    SpeedTarget("same, until steady at 1 %", 30.0, _until_steady),
    SpeedTarget(
        "SimLoop timers over raw SimPy",
        0.7,
        lambda figures: figures["timers_per_second"]["simloop"] / figures["timers_per_second"]["simpy"],
        at_least=True,
    ),
    SpeedTarget(
        "fuzzer: simulated hostile hours per CPU second",
        12.0,
        lambda figures: figures["fuzz"]["simulated_hours_per_cpu_second"],
        at_least=True,
    ),
    SpeedTarget("memory at 10,000 desktops, MB", 371.0, lambda figures: _row(figures, 10_000)["peak_rss_mb"]),
)


def targets_of(figures: Figures) -> list[Figures]:
    """Return each target with what was measured, and whether that meets it."""
    found = []
    for target in TARGETS:
        measured = target.measured(figures)
        within = None if measured is None else measured >= target.limit if target.at_least else measured <= target.limit
        found.append(
            {
                "figure": target.figure,
                "at_least" if target.at_least else "at_most": target.limit,
                "measured": None if measured is None else round(measured, 2),
                "met": within,
            }
        )
    return found


def targets_table(figures: Figures) -> Rows:
    """Targets beside what was measured."""
    words = {True: "yes", False: "**no**", None: None}
    entries = (
        {
            **row,
            "target": f"at least {row['at_least']:g}" if "at_least" in row else f"at most {row['at_most']:g}",
            "words": words[row["met"]],
        }
        for row in figures["targets"]
    )
    columns = {"figure": "{figure}", "target": "{target}", "measured": "{measured:g}", "met?": "{words}"}
    return rows_of(columns, entries)
