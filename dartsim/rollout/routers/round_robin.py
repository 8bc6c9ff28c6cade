"""Round robin with sticky workers: by session (AReaL) or by group (prime-rl)."""

from __future__ import annotations

from typing_extensions import override

from dartsim.core.registry import ComponentSection, register
from dartsim.rollout.routers import Routed, Router


@register("router", "round_robin")
class RoundRobin(Router):
    """Sessions take workers in turn, whatever their load, and keep them while they are up (AReaL).

    Invariant: a session changes its worker only when the worker is not up.
    """

    def __init__(self, parameters: ComponentSection | None = None) -> None:
        super().__init__()
        self._ring: list[Routed] = []
        self._next = 0

    @override
    def add(self, worker: Routed) -> None:
        super().add(worker)
        if worker not in self._ring:  # a worker that went down keeps its place
            self._ring.append(worker)

    @override
    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        if last is not None and last.routable:
            return last
        place, ring = self._place(group), self._ring
        for step in range(len(ring)):
            worker = ring[(place + step) % len(ring)]
            if worker.routable:
                return worker
        return self.least_loaded()

    def _place(self, group: int) -> int:
        """Return the place in the ring where a session looks first."""
        self._next += 1
        return self._next - 1


@register("router", "group_round_robin")
class GroupRoundRobin(RoundRobin):
    """Groups take workers in turn; all sessions of a group stay on the same worker (prime-rl)."""

    @override
    def _place(self, group: int) -> int:
        return group
