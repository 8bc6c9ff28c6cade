"""Why a run trained nothing, explained from the figures of the ended run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dartsim.core.types import Drop, Ending
from dartsim.core.words import plural

REMEDIES: Mapping[str, str] = {
    Drop.ALL_FAILED: "Every attempt of a group failed: check that the evaluator can return more than 0, take easier "
    "tasks, or raise curation.attempts.group_size.",
    Drop.ALL_SOLVED: "Every attempt of a group succeeded: check that the evaluator can return less than 1, or take "
    "harder tasks.",
    Drop.NO_SIGNAL: "All rewards of a group are equal: check that the evaluator tells better attempts from worse ones.",
    Drop.UNTRAINABLE: "Batches could not change the weights: the log says why, such as missing log-probabilities.",
    Drop.TOO_SMALL: "Faults left too few attempts in a group: `dartsim show` has their causes.",
    Drop.MASKED: "Attempts ended by faults: `dartsim show` has their causes.",
    Drop.STALE: "Raise curation.staleness.max_staleness, or lower rollout.max_turns.",
}
"""What to do if most attempts were dropped for this reason."""
MOST = 3
"""Maximum number of causes that are named."""
CANCELED = ("run ended", "withdrawn", "interrupted")
"""Causes of attempts that the run itself canceled."""


def why_nothing_trained(
    figures: Mapping[str, Any], *, admission: str, batch: str, batch_attempts: int, failed_updates: int, updating: bool
) -> str | None:
    """Return why a run trained nothing, as sentences; None if it trained something.

    Args:
        figures: As ``dartsim.observe.figures.summary``.
        admission: Why no other attempt began at its end.
        batch: What the next batch lacked at its end.
        batch_attempts: Attempts of the smallest batch.
        failed_updates: Number of failed updates.
        updating: Whether an update was running at its end.
    """
    if figures["num_updates"] and figures["trained_turns_per_minute"]:
        return None
    hours = f"{figures['simulated_hours']:.3g} h"
    if figures["total_updates"]:
        if figures["trained_trajectories"]:
            return (
                f"Nothing was trained after the warm-up of {figures['warmup_hours']:.3g} h: all "
                f"{plural(figures['total_updates'], 'update')} finished before. Try more hours."
            )
        return f"Nothing was trained: {plural(figures['total_updates'], 'update')} had no turn to train on."
    if not figures["attempts"]:
        return f"Nothing was trained: no attempt was admitted in {hours}. Admission says: {admission}."
    if failed_updates:
        return f"Nothing was trained: {plural(failed_updates, 'update')} failed, none finished; the log has the errors."
    if updating:
        return f"Nothing was trained: the run of {hours} is too short: its first update had not finished."
    return f"Nothing was trained: {_without_an_update(figures, hours, batch, batch_attempts)}"


def _without_an_update(figures: Mapping[str, Any], hours: str, batch: str, batch_attempts: int) -> str:
    """Return why no batch was formed, although attempts began."""
    canceled = figures["endings"].get(Ending.CANCELLED, 0)
    ended = sum(figures["endings"].values()) - canceled
    dropped = Counter(figures["dropped"])
    dropped[Drop.MASKED] -= canceled
    lost = {reason: number for reason, number in dropped.most_common() if reason in REMEDIES and number > 0}
    starts = figures["faults"].get("start", 0)
    if not ended and starts:
        return f"no attempt ended, for {plural(starts, 'start')} of desktops failed ({_causes(figures)})."
    if not ended:
        return f"the run of {hours} is too short: none of its {plural(figures['attempts'], 'attempt')} ended."
    if lost.get(Drop.MASKED, 0) >= ended:
        return f"all {plural(ended, 'attempt')} that ended were masked ({_causes(figures)})."
    if ended >= batch_attempts and 2 * sum(lost.values()) > ended:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in lost.items())
        masked = f" (masked: {_causes(figures)})" if Drop.MASKED in lost else ""
        return (
            f"of {plural(ended, 'attempt')} that ended, {sum(lost.values()):,} were dropped ({reasons}){masked}. "
            f"{REMEDIES[next(iter(lost))]}"
        )
    return f"the run of {hours} is too short: no batch was full by its end ({batch}). Try more hours."


def _causes(figures: Mapping[str, Any]) -> str:
    """Return the most frequent causes of masked attempts and failed starts, with the newest message of each."""
    counts = Counter(figures["causes"]) + Counter(figures["start_causes"])
    for canceled in CANCELED:
        del counts[canceled]
    if figures["start_causes"]:
        del counts["EnvStartFailed"]  # counted for the attempt, and again by cause for each of its starts
    reasons = figures["fault_reasons"]
    return ", ".join(
        f"{number:,} {cause}{f': {reasons[cause]}' if cause in reasons else ''}"
        for cause, number in counts.most_common(MOST)
    )
