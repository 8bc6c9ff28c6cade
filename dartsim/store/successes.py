"""Stored successes, and how a group tells them from the attempts that the run made for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from dartsim.core.types import Batch, Group, Trajectory


class Origin(StrEnum):
    """Where a stored success comes from."""

    COLLECTED = "collected"
    """From before the run: an oracle, another model, a recorded run (``curation.pool.file``)."""
    ONLINE = "online"
    """From an attempt of this run."""


@dataclass(slots=True, kw_only=True)
class Stored:
    """One stored success.

    Attributes:
        trajectory: It, with the log-probabilities of the policy that made it.
        origin: Where it comes from.
        stored: Loop time at which it was stored, seconds.
        uses: Groups it was put into.
    """

    trajectory: Trajectory
    origin: Origin
    stored: float
    uses: int = 0


def pooled(group: Group) -> tuple[Trajectory, ...]:
    """Return the trajectories that came into a group from the pool: those of attempts of another group."""
    return tuple(t for t in group.trajectories if t.attempt.group != group.id)


def own(group: Group) -> tuple[Trajectory, ...]:
    """Return the trajectories of a group's own attempts: those that the run admitted, and counts, for it."""
    return tuple(t for t in group.trajectories if t.attempt.group == group.id)


def own_batch(batch: Batch) -> Batch:
    """Return a batch without what came from the pool: what its update consumes of the run's attempts."""
    if not any(pooled(group) for group in batch.groups):
        return batch
    return replace(batch, groups=tuple(replace(group, trajectories=own(group)) for group in batch.groups))
