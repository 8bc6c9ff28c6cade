"""The closed-form knee: how many desktops one rollout GPU answers before it, not they, limits the turns."""

from __future__ import annotations

from typing import Any

from dartsim.lab.bounds import desktop_bound, least_seconds, turn_load
from dartsim.run.models import Models

MOST = 1_000
"""Desktops on a GPU beyond which no knee is looked for."""


def knee(found: Models, turns: float | None = None) -> dict[str, Any]:
    """Return the fewest desktops on one GPU that can ask for more turns than it can answer.

    Desktops of which each has an engine to itself (``desktop_bound``) against an engine that is always full and
    never changes weights (``least_seconds``): waiting rounds the corner off, on both sides of the knee.

    Args:
        found: The configuration and what it names.
        turns: Mean turns of a trajectory; those of the surrogate's mix by default.
    """
    config = found.config
    turns = mean_turns(found) if turns is None else turns
    each = desktop_bound(found, turns) / config.rollout.num_envs
    loads = {"cold": turn_load(found, turns, warm=False), "warm": turn_load(found, turns, warm=True)}
    knees = {
        name: next((n for n in range(1, MOST) if n * each >= 60.0 / least_seconds(found.gpu, load, n)), None)
        for name, load in loads.items()
    }
    return {
        "turns_per_minute_of_a_desktop": each,
        "no_prefix_cached": knees["cold"],
        "all_prefixes_cached": knees["warm"],
        "busy_seconds_of_a_turn_alone": least_seconds(found.gpu, loads["cold"], 1),
    }


def mean_turns(found: Models) -> float:
    """Return the mean length of the surrogate's trajectories, as if none were cut off, turns."""
    surrogate = found.config.surrogate
    success = surrogate.mean_success if surrogate.mean_success is not None else 0.559
    return success * surrogate.success_turns_mean + (1.0 - success) * surrogate.failure_turns_mean
