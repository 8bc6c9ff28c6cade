"""DART's router. Compiled in wheels, because it is called at every turn."""

from __future__ import annotations

from dartsim.core.compiled import mypyc_attr
from dartsim.core.registry import register
from dartsim.rollout.routing import Routed, Router


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastInFlight(Router):
    """The worker with the fewest live requests."""

    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        return self.least_loaded()


# Not a decorator, because mypyc would make the class slow.
register("router", "least_in_flight")(LeastInFlight)
