"""The rules that make up a scheduler. Modules here register components that a configuration can choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dartsim.core.types import Drop, Group, StoredSuccess, Task, Trajectory
from dartsim.curation.eligibility import GroupFilter, StalenessRule
from dartsim.curation.rules.admission import AdmissionRule
from dartsim.curation.rules.attempts import AttemptsRule
from dartsim.curation.rules.batches import BatchRule
from dartsim.curation.rules.task_order import TaskOrder
from dartsim.curation.rules.turn_limit import TurnLimitRule
from dartsim.curation.success_pool import SuccessPool


class GradedGroup(NamedTuple):
    """A complete group, and whether it may be trained on."""

    group: Group
    """The group, including a stored success if one rescued it."""
    reason: Drop | None
    """Why it is dropped; None if it may be trained on."""
    replaced: Trajectory | None = None
    """The failure that a stored success replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a data manager. Some of them learn, so each run needs its own instances.

    Attributes:
        order: Which task is next.
        attempts: How many attempts a task gets.
        turn_limits: How many turns the attempts of a group may take.
        admission: Whether another group may begin; begun groups are always completed.
        group_filter: Which groups may be trained on.
        batch_rule: When there is a batch, and which groups it takes.
        staleness: How old a trajectory may be.
        pool: Stored successes for groups in which all attempts failed; None: such groups are dropped.
        publish_wait: What ``before_publication`` waits for: nothing; the running groups, while no new one begins; or
            the complete next batch.
    """

    order: TaskOrder
    attempts: AttemptsRule
    turn_limits: TurnLimitRule
    admission: AdmissionRule
    group_filter: GroupFilter
    batch_rule: BatchRule
    staleness: StalenessRule
    pool: SuccessPool | None = None
    publish_wait: Literal["nothing", "running", "batch"] = "nothing"

    def learn(self, trajectory: Trajectory, *, now: float) -> None:
        """Learn from an attempt that ended at this loop time."""
        self.turn_limits.learn((trajectory,))
        if self.pool is not None:
            self.pool.learn((trajectory,), now=now)

    def grade(self, number: int, task: Task, usable: Sequence[Trajectory], *, now: float) -> GradedGroup:
        """Grade the unmasked trajectories of a complete group, and learn from them."""
        rewards = [trajectory.reward for trajectory in usable if trajectory.reward is not None]
        self.attempts.learn(task.id, rewards)
        self.order.learn(task.id, rewards)
        reason = self.group_filter.reason_to_drop(usable)
        pool = self.pool
        if pool is not None and reason is not Drop.TOO_SMALL and pool.wanted(usable):
            rescue = pool.rescue(usable)
            if rescue is not None:
                group = Group(number, task, rescue.trajectories, now)
                return GradedGroup(group, self.group_filter.reason_to_drop(rescue.trajectories), rescue.replaced)
        return GradedGroup(Group(number, task, tuple(usable), now), reason)

    def state(self) -> dict[str, Any]:
        """Return what the rules have learned; the order and the stored successes are saved apart."""
        return {
            "attempts": self.attempts.state(),
            "turn_limits": self.turn_limits.state(),
            "pool": None if self.pool is None else self.pool.state(),
        }

    def restore(self, saved: Mapping[str, Any], successes: Sequence[StoredSuccess]) -> None:
        self.attempts.restore(saved["attempts"])
        self.turn_limits.restore(saved["turn_limits"])
        if self.pool is not None:
            self.pool.restore(successes, saved["pool"] or {})
