"""A router that keeps all attempts of a group on one engine, whose prefix cache then holds their common prompt."""

from pydantic import Field

import dartsim


@dartsim.register("router", "group-affine")
class GroupAffine(dartsim.Router):
    """The engine of the group's first request, unless that has many more live requests than another."""

    class Parameters(dartsim.ComponentSection):
        """When a group moves; set as `rollout.routing.margin`."""

        margin: int = Field(4, ge=0, description="Live requests above the least loaded engine's.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.margin = parameters.margin
        self.home: dict[int, dartsim.Routed] = {}

    def pick(self, last: dartsim.Routed | None, group: int = 0) -> dartsim.Routed:
        least = self.least_loaded()
        home = self.home.setdefault(group, least)
        if not home.routable or home.in_flight > least.in_flight + self.margin:
            home = self.home[group] = least
        return home
