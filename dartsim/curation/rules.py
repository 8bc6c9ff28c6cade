"""``Rules``: everything that a data manager goes by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dartsim.curation.admission import AdmissionRule
from dartsim.curation.attempts import AttemptsRule
from dartsim.curation.batches import BatchRule
from dartsim.curation.concurrency import CacheUseRule, EngineCaches
from dartsim.curation.further import FurtherRule
from dartsim.curation.groups import GroupFilter
from dartsim.curation.staleness import StalenessRule
from dartsim.curation.success_pool import SuccessPool
from dartsim.curation.task_filter import Order, TaskFilter
from dartsim.curation.turn_limit import TurnLimitRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The parts that make a scheduler. Some of them learn: these are one run's own.

    Attributes:
        order: Which task is next.
        attempts: How many attempts a task gets.
        turn_limits: How many turns the attempts of a group may take.
        group_rule: Which groups may be trained on.
        batch_rule: When there is a batch, and what it takes.
        staleness: How old a trajectory may be.
        pool: Stored successes for groups in which all failed; None: such groups are dropped.
        task_filter: Learns which tasks teach nothing; the order leaves them out.
        max_ahead: Bound on admitted attempts that no published weights contain yet; None for no bound.
        admission: Bounds on groups, asked before a group is begun; one that was begun goes on.
        concurrency: Bound on attempts that run, moved by how full ``caches`` are; None for none.
        caches: Those of the engines.
        requeue_stale: Whether the task of a group that got stale is offered again, before others.
        cancel_stale: Whether running attempts end whose group is certain to be stale.
        publish_wait: What ``before_publication`` waits for: nothing; the groups that run, with no new one begun
            meanwhile; or the whole next batch.
        max_replacements: Masked attempts of one group that are tried again; cancelled ones always are.
        further: Attempts that slots without work add to groups in which all failed.
    """

    order: Order
    attempts: AttemptsRule
    turn_limits: TurnLimitRule
    group_rule: GroupFilter
    batch_rule: BatchRule
    staleness: StalenessRule
    pool: SuccessPool | None = None
    task_filter: TaskFilter | None = None
    max_ahead: int | None = None
    admission: AdmissionRule = field(default_factory=AdmissionRule)
    concurrency: CacheUseRule | None = None
    caches: EngineCaches | None = None
    requeue_stale: bool = False
    cancel_stale: bool = False
    publish_wait: Literal["nothing", "running", "batch"] = "nothing"
    max_replacements: int = 2
    further: FurtherRule = field(default_factory=FurtherRule)
