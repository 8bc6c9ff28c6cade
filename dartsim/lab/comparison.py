"""Figures that schedulers are compared by: those of one run, and means with confidence intervals over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import cos, pi, sin, sqrt, tan
from statistics import fmean, stdev
from typing import Any

from dartsim.observe.bias import judged_shares, least_trained, sum_counts

FIGURES = (
    "trained_turns_per_minute",
    "signal_turns_per_minute",
    "admitted_turns_per_minute",
    "generated_turns_per_minute",
    "bound_trained_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "trainer_utilization",
    "prefix_hit_share",
    "staleness_mean",
    "staleness_max",
    "wasted_share",
    "minutes_per_version",
    "hours_to_updates",
    "desktop_hours_per_1000_turns",
    "gpu_hours_per_1000_turns",
)
"""Numeric figures, which have a mean over seeds."""


def comparison_figures(
    summary: Mapping[str, Any], update_hours: Sequence[float] = (), *, updates: int | None = None
) -> dict[str, Any]:
    """Return the figures of one run for a comparison.

    ``hours_to_updates`` is when update number ``updates`` finished; ``desktop_hours_per_1000_turns`` and
    ``gpu_hours_per_1000_turns`` are provisioned desktops and engines (lent ones while they are) per
    thousand trained turns. Shares of classes of tasks (``classes``) are relative to what the group filter leaves
    (``dartsim.observe.bias``).
    """
    rollout, failure = summary["config"]["rollout"], summary.get("failure")
    figures = {} if failure else summary
    per_minute, bias = figures.get("trained_turns_per_minute"), figures.get("bias", {})
    hours = 1000.0 / per_minute / 60.0 if per_minute else None
    provided = rollout["num_workers"] + rollout.get("lending", {}).get("engines", 0)
    engines = provided * (1.0 - figures.get("engine_shares", {}).get("off", 0.0))
    reached = updates is not None and 1 <= updates <= len(update_hours)
    values = {
        **figures,
        "hours_to_updates": update_hours[updates - 1] if reached and updates is not None else None,
        "desktop_hours_per_1000_turns": hours and hours * (rollout["num_envs"] + rollout["warm_envs"]),
        "gpu_hours_per_1000_turns": hours and hours * engines,
    }
    return {
        "failure": failure,
        **{name: values.get(name) for name in FIGURES},
        "event_hash": summary.get("event_hash"),
        "staleness_histogram": summary.get("staleness_histogram", {}),
        "staleness_definitions": summary.get("staleness_definitions", {}),
        **({"steady": summary["steady"]} if "steady" in summary else {}),
        "bias": bias,
        "num_engines": rollout["num_workers"],
        "classes": {
            by: {label: share.as_json() for label, share in own.items()} for by, own in judged_shares(bias).items()
        },
    }


def classes_over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the least trained and the starved classes, from the summed counts of all runs.

    The lowest ratio has no useful mean over runs: even if all classes are treated alike, one is lowest by chance.

    Returns:
        ``least_classes``: the least trained class of each classification. ``starved_classes``: all starved classes,
        with their classification ``by``; None if the group filter was not counted.
    """
    shares_by = judged_shares(sum_counts([run["bias"] for run in runs]))
    every = [
        {"by": by, "class": label, **share.as_json()} for by, own in shares_by.items() for label, share in own.items()
    ]
    return {
        "least_classes": {
            by: {"class": (label := least_trained(own)), **own[label].as_json()} for by, own in shares_by.items()
        },
        "starved_classes": [share for share in every if share["starved"]] if shares_by else None,
    }


@cache
def student_t(level: float, freedom: int) -> float:
    """Return Student's t, two-sided: the t whose absolute value is exceeded with probability ``level``, in (0, 1).

    Source: the probability in closed form, Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, pi / 2.0  # of atan(t / sqrt(freedom))
    for _ in range(60):
        angle = (low + high) / 2.0
        term = total = cos(angle) if freedom % 2 else 1.0
        for factor in range(3 if freedom % 2 else 2, freedom - 1, 2):
            term *= cos(angle) ** 2 * (factor - 1) / factor
            total += term
        inside = total * sin(angle)
        if freedom % 2:
            inside = 2.0 / pi * (angle + (inside if freedom > 1 else 0.0))
        low, high = (angle, high) if 1.0 - inside > level else (low, angle)
    return sqrt(freedom) * tan(low)


def half_width(values: Sequence[float], level: float = 0.05) -> float | None:
    """Return half the width of the mean's confidence interval, by default 95 %; None with fewer than two values."""
    return None if len(values) < 2 else student_t(level, len(values) - 1) * stdev(values) / sqrt(len(values))


def over_seeds(
    runs: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None
) -> dict[str, dict[str, float | None]]:
    """Return the mean and the 95 % half-width of figures that all runs have; for ``staleness_max`` the maximum."""
    result: dict[str, dict[str, float | None]] = {}
    for name in FIGURES if names is None else names:
        if any(run.get(name) is None for run in runs):
            continue
        values = [run[name] for run in runs]
        if name == "staleness_max":
            result[name] = {"mean": max(values), "half_width": None}
        else:
            result[name] = {"mean": fmean(values), "half_width": half_width(values)}
    return result
