"""Curation: which attempts start, which groups are worth training, what a batch is, what became of all."""

from dartsim.curation.admission import AdmissionRule, GroupCounts
from dartsim.curation.admission_queue import SamplingUnit
from dartsim.curation.attempts import AttemptsBySuccess, AttemptsRule, FixedAttempts
from dartsim.curation.batches import BatchRule, RunningGroup
from dartsim.curation.concurrency import CachePressure, CacheUse, CacheUseRule, EngineCaches
from dartsim.curation.further import FurtherRule
from dartsim.curation.groups import GroupFilter
from dartsim.curation.manager import DataManager
from dartsim.curation.rules import Rules
from dartsim.curation.selection import AllTurns, HighEntropyTurns, TurnSelection
from dartsim.curation.staleness import StalenessRule
from dartsim.curation.success_pool import SuccessPool
from dartsim.curation.task_filter import FilteredOrder, Order, TaskFilter, split_tasks
from dartsim.curation.tasks import TaskOrder
from dartsim.curation.turn_limit import FixedTurnLimit, TurnLimitBySuccess, TurnLimitRule

__all__ = [
    "AdmissionRule",
    "AllTurns",
    "AttemptsBySuccess",
    "AttemptsRule",
    "BatchRule",
    "CachePressure",
    "CacheUse",
    "CacheUseRule",
    "DataManager",
    "EngineCaches",
    "FilteredOrder",
    "FixedAttempts",
    "FixedTurnLimit",
    "FurtherRule",
    "GroupCounts",
    "GroupFilter",
    "HighEntropyTurns",
    "Order",
    "Rules",
    "RunningGroup",
    "SamplingUnit",
    "StalenessRule",
    "SuccessPool",
    "TaskFilter",
    "TaskOrder",
    "TurnLimitBySuccess",
    "TurnLimitRule",
    "TurnSelection",
    "split_tasks",
]
