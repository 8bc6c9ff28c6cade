"""Curation: which attempts start, which groups are worth training, what a batch is, what became of all."""

from dartsim.curation.attempts import AttemptsBySuccess, AttemptsRule, FixedAttempts
from dartsim.curation.batches import BatchRule
from dartsim.curation.groups import GroupRule
from dartsim.curation.manager import DataManager
from dartsim.curation.staleness import StalenessRule
from dartsim.curation.store import MemoryStore, TrajectoryState
from dartsim.curation.tasks import TaskOrder
from dartsim.curation.units import Units

__all__ = [
    "AttemptsBySuccess",
    "AttemptsRule",
    "BatchRule",
    "DataManager",
    "FixedAttempts",
    "GroupRule",
    "MemoryStore",
    "StalenessRule",
    "TaskOrder",
    "TrajectoryState",
    "Units",
]
