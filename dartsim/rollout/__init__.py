"""Rollout: leases desktops to attempts, plays them, and routes their requests to engines while weights change."""

from dartsim.rollout.actors import Rollout
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.lender import Lender
from dartsim.rollout.lockstep import LockstepService
from dartsim.rollout.playing import play
from dartsim.rollout.revert import RevertingProvider
from dartsim.rollout.routers import Router
from dartsim.rollout.service import RolloutService, Service
from dartsim.rollout.turns import Session
from dartsim.rollout.warm import WarmProvider

__all__ = [
    "EnvCluster",
    "Lender",
    "LockstepService",
    "RevertingProvider",
    "Rollout",
    "RolloutService",
    "Router",
    "Service",
    "Session",
    "WarmProvider",
    "play",
]
