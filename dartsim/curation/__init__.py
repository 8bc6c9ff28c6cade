"""Curation: which attempts start, which groups are worth training, what a batch is, what became of all."""

from dartsim.curation.admission import AdmissionRule, Places
from dartsim.curation.attempts import AttemptsBySuccess, AttemptsRule, FixedAttempts
from dartsim.curation.batches import BatchRule, Begun
from dartsim.curation.concurrency import Caches, CacheUse, CacheUseRule, Pressure
from dartsim.curation.further import FurtherRule
from dartsim.curation.groups import GroupRule
from dartsim.curation.held_out import FilteredOrder, Order, TaskFilter, split_tasks
from dartsim.curation.manager import DataManager
from dartsim.curation.pool import SuccessPool
from dartsim.curation.rules import Rules
from dartsim.curation.selection import AllTurns, HighEntropyTurns, TurnSelection
from dartsim.curation.staleness import StalenessRule
from dartsim.curation.tasks import TaskOrder
from dartsim.curation.turn_limit import FixedTurnLimit, TurnLimitBySuccess, TurnLimitRule
from dartsim.curation.units import Units

__all__ = [
    "AdmissionRule",
    "AllTurns",
    "AttemptsBySuccess",
    "AttemptsRule",
    "BatchRule",
    "Begun",
    "CacheUse",
    "CacheUseRule",
    "Caches",
    "DataManager",
    "FilteredOrder",
    "FixedAttempts",
    "FixedTurnLimit",
    "FurtherRule",
    "GroupRule",
    "HighEntropyTurns",
    "Order",
    "Places",
    "Pressure",
    "Rules",
    "StalenessRule",
    "SuccessPool",
    "TaskFilter",
    "TaskOrder",
    "TurnLimitBySuccess",
    "TurnLimitRule",
    "TurnSelection",
    "Units",
    "split_tasks",
]
