"""DART's router."""

from __future__ import annotations

from typing_extensions import override

from dartsim.core.registry import register
from dartsim.rollout.routers import Routed, Router


@register("router", "least_in_flight")
class LeastInFlight(Router):
    """The worker with the fewest live requests."""

    @override
    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        return self.least_loaded()
