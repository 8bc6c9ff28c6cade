"""Closed-form bounds on what a configuration can train: the bottleneck law, beside every simulated figure.

Nothing can train faster than its trainer, nor than its desktops produce; each bound leaves out all waiting.
A measured window that begins in the middle of an update counts all of its turns when it ends, so in a short run
the simulated figure may lie above the trainer's bound by up to one update's turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartsim.run.models import Models


def bounds(found: Models, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds on trained turns per minute.

    The mean turns of an update and of a trajectory are taken from the run.

    Args:
        found: The configuration and what it names.
        figures: The run's figures.
    """
    num_updates, turns = figures["num_updates"], figures["turns_per_trajectory"]
    if not num_updates or not turns:
        return {"bound_trained_turns_per_minute": None, "bound_by": None}
    by_part = {
        "trainer": trainer_bound(found, figures["trained_turns_per_minute"] * figures["minutes"] / num_updates),
        "desktops": desktop_bound(found, turns),
    }
    part = min(by_part, key=lambda name: by_part[name])
    return {
        "bound_trained_turns_per_minute": by_part[part],
        "bound_by": part,
        "bounds": by_part,
    }


def trainer_bound(found: Models, turns_per_update: float) -> float:
    """Return the turns a minute of a trainer that never waits."""
    learner = found.config.cluster.learner
    return 60.0 * turns_per_update / (learner.fixed_seconds + learner.turn_seconds * turns_per_update)


def desktop_bound(found: Models, turns_per_trajectory: float) -> float:
    """Return the turns a minute of desktops whose every request is answered by an engine of its own.

    The engine's part of a turn is a decode of the mean reply alone, or a batch of one; prefill, queues and syncs are
    left out.
    """
    engine = found.config.cluster.engine
    if engine.model != "fluid":
        reply_seconds = engine.batch_seconds + engine.request_seconds
    else:
        reply_seconds = found.prompts.reply_tokens * found.gpu.iteration_seconds(1)
    turn_seconds = found.timing.step.mean + engine.overhead_seconds + engine.control_seconds + reply_seconds
    attempt_seconds = found.timing.cycle_seconds + turns_per_trajectory * turn_seconds
    return 60.0 * found.config.rollout.num_envs * turns_per_trajectory / attempt_seconds
