"""Rollout: desktops lent to attempts, an inference pool with live weight changes, the play of an attempt."""

from dartsim.rollout.actors import Rollout
from dartsim.rollout.cluster import EnvCluster, StartRule
from dartsim.rollout.lockstep import LockstepService
from dartsim.rollout.play import play
from dartsim.rollout.routers import Router
from dartsim.rollout.service import RolloutService, Service, Session
from dartsim.rollout.sync import SyncPlan
from dartsim.rollout.warm import WarmProvider

__all__ = [
    "EnvCluster",
    "LockstepService",
    "Rollout",
    "RolloutService",
    "Router",
    "Service",
    "Session",
    "StartRule",
    "SyncPlan",
    "WarmProvider",
    "play",
]
