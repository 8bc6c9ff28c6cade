"""The rules that make up a scheduler. Modules here register components that a configuration can choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dartsim.curation.eligibility import GroupFilter, StalenessRule
from dartsim.curation.rules.admission import AdmissionRule
from dartsim.curation.rules.attempts import AttemptsRule
from dartsim.curation.rules.batches import BatchRule
from dartsim.curation.rules.task_order import TaskOrder
from dartsim.curation.rules.turn_limit import TurnLimitRule
from dartsim.curation.success_pool import SuccessPool


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
        max_ahead: Bound on admitted attempts not yet in published weights; None: no bound.
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
    max_ahead: int | None = None
    publish_wait: Literal["nothing", "running", "batch"] = "nothing"
