"""Sticky sessions (verl)."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import override

from dartsim.core.registry import ComponentSection, register
from dartsim.rollout.routers import Routed, Router


@register("router", "session_affine")
class SessionAffine(Router):
    """The session's last worker, whose prefix cache has its prompt, unless that worker is overloaded."""

    class Parameters(ComponentSection):
        """When a worker is overloaded."""

        max_excess: int = Field(4, ge=0, description="Live requests above the least loaded worker's.")

    def __init__(self, parameters: Parameters | None = None) -> None:
        super().__init__()
        self._max_excess = (parameters or self.Parameters()).max_excess

    @override
    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        least = self.least_loaded()
        if last is not None and last.routable and last.in_flight - least.in_flight <= self._max_excess:
            return last
        return least
