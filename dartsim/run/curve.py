"""The learning curve of a run: success of its attempts and on held-out tasks, over simulated time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from dartsim.observe.figures import mean_reward
from dartsim.observe.records import HELD_OUT, Snapshot, UpdateRecord

MAX_POINTS = 60
"""Points of the attempts' curve: each then stands for enough attempts to be read."""


def learning_curve(
    snapshots: Sequence[Snapshot], updates: Sequence[UpdateRecord], first: float | None, last: float | None
) -> dict[str, Any]:
    """Return ``attempts`` and ``held_out``, each with columns ``hours`` and ``success_rate``.

    Args:
        snapshots: Those of the run.
        updates: Those of the run.
        first: Success rate of the first weights on held-out tasks, if evaluated.
        last: That of the last ones.
    """
    step = max(1, len(snapshots) // MAX_POINTS)
    thinned = list(snapshots[::step])
    rates = [(b.time, mean_reward(a, b)) for a, b in pairwise(thinned)]
    held_out: list[tuple[float, float | None]] = [(0.0, first)]
    held_out += [(record.time, record.metrics[HELD_OUT]) for record in updates if HELD_OUT in record.metrics]
    held_out.append((snapshots[-1].time, last))
    return {"attempts": _columns(rates), "held_out": _columns(held_out)}


def _columns(points: Sequence[tuple[float, float | None]]) -> Mapping[str, list[float]]:
    known = [(time, rate) for time, rate in points if rate is not None]
    return {
        "hours": [round(time / 3600.0, 6) for time, _ in known],
        "success_rate": [round(rate, 6) for _, rate in known],
    }
