"""Routers: choose the worker of a request among the routable workers; one module per router.

Their base class is in ``dartsim.rollout.routing``.
"""

from dartsim.rollout.routing import Routed, Router

__all__ = ["Routed", "Router"]
