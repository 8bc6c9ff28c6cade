"""Routers: choose the worker of a request by pure rules over the routable workers; one module per router.

What they have in common is in ``dartsim.rollout.routing``.
"""

from dartsim.rollout.routing import Routed, Router

__all__ = ["Routed", "Router"]
