"""Curation: which attempts start, which groups are trained on, how batches are formed; an account of all attempts."""

from dartsim.curation.admission import slot_groups
from dartsim.curation.eligibility import GroupFilter, StalenessRule
from dartsim.curation.manager import DataManager
from dartsim.curation.rules import Rules
from dartsim.curation.rules.admission import CachePressure, EngineCaches, GroupCounts
from dartsim.curation.rules.batches import RunningGroup
from dartsim.curation.rules.selection import TurnSelection
from dartsim.curation.success_pool import SuccessPool
from dartsim.curation.task_filter import TaskFilter

__all__ = [
    "CachePressure",
    "DataManager",
    "EngineCaches",
    "GroupCounts",
    "GroupFilter",
    "Rules",
    "RunningGroup",
    "StalenessRule",
    "SuccessPool",
    "TaskFilter",
    "TurnSelection",
    "slot_groups",
]
