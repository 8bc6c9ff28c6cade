"""Figures over simulated time: one value for each interval between two snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.observe.figures import figures
from dartsim.observe.recorder import Recorder
from dartsim.observe.records import Snapshot, UpdateRecord
from dartsim.observe.states import POPULATIONS

RATES = (
    "generated_turns_per_minute",
    "admitted_turns_per_minute",
    "trained_turns_per_minute",
    "trajectories_per_minute",
)
UTILIZATIONS = ("env_utilization", "gpu_utilization")
MAX_UPDATES = 1000


def series(recorder: Recorder) -> dict[str, Any]:
    """Return rates and shares by interval, and the updates, as written to ``series.json``."""
    return {**intervals(recorder.snapshots), "updates": updates(list(recorder.updates))}


def intervals(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return each figure as a column with one value for each interval between two snapshots."""
    pairs = [(first, last) for first, last in pairwise(snapshots) if last.time > first.time]
    rows = [figures(first, last) for first, last in pairs]

    def column(name: str) -> list[float]:
        return [round(row[name], 6) for row in rows]

    def states(key: str) -> dict[str, list[float]]:
        names = rows[0][key] if rows else {}
        return {name: [round(row[key][name], 6) for row in rows] for name in names}

    return {
        "from_hours": [round(first.time / 3600.0, 6) for first, _ in pairs],
        "to_hours": [round(last.time / 3600.0, 6) for _, last in pairs],
        "rates": {name: column(name) for name in RATES},
        "utilization": {name: column(name) for name in UTILIZATIONS},
        "shares": {name: states(info.shares) for name, info in POPULATIONS.items()},
    }


def updates(records: Sequence[UpdateRecord]) -> dict[str, list[float]]:
    """Return the updates as columns; of many, evenly spread ones, the last one included."""
    step = -(-len(records) // MAX_UPDATES) or 1
    kept = records[::-step][::-1]
    return {
        "update": [record.update for record in kept],
        "time_hours": [round(record.time / 3600.0, 6) for record in kept],
        "mean_reward": [round(record.mean_reward, 6) for record in kept],
        "num_turns": [record.num_turns for record in kept],
        "staleness_mean": [round(record.staleness_mean, 6) for record in kept],
        "staleness_max": [record.staleness_max for record in kept],
    }


def rolling(
    data: Mapping[str, Any], values: Sequence[float], *, window_hours: float, num_points: int = 240
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return hours and the mean of ``values`` in a window around each of them.

    Args:
        data: What ``intervals`` returned.
        values: One of its columns.
        window_hours: Width of the window; at the run's ends, the part of it that lies within the run.
        num_points: Number of points returned, evenly spread.
    """
    start = np.asarray(data["from_hours"], dtype=np.float64)
    end = np.asarray(data["to_hours"], dtype=np.float64)
    if not len(start):
        return np.empty(0), np.empty(0)
    borders = np.append(start, end[-1])
    summed = np.append(0.0, np.cumsum(np.asarray(values, dtype=np.float64) * (end - start)))
    hours = np.linspace(borders[0], borders[-1], num_points)
    low = np.maximum(hours - window_hours / 2.0, borders[0])
    high = np.minimum(hours + window_hours / 2.0, borders[-1])
    return hours, (np.interp(high, borders, summed) - np.interp(low, borders, summed)) / (high - low)


def by_label(counts: Mapping[str, Mapping[str, float]], labels: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Add counts by task up to counts by label (a domain, a decile of success), sorted by label.

    Args:
        counts: By task, by what was counted: ``{"offered": recorder.offered, "trained": recorder.trained}``.
        labels: The label of each task's id; tasks without one are left out.
    """
    sums: dict[str, dict[str, float]] = {label: dict.fromkeys(counts, 0) for label in sorted(set(labels.values()))}
    for name, by_task in counts.items():
        for task, number in by_task.items():
            if task in labels:
                sums[labels[task]][name] += number
    return sums
