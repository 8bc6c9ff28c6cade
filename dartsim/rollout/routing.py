"""Which worker answers a request: pure rules over the workers that may take one.

No rule looks at every worker while most are up, so that a turn costs the same with 4 workers and with 400.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal


class Routed:
    """A worker, as a router sees it: a number of live requests."""

    __slots__ = ("in_flight", "index", "routable")

    def __init__(self, index: int) -> None:
        self.index = index
        self.in_flight = 0
        self.routable = False


class Router(ABC):
    """Keeps the routable workers in order of their load and picks one for a session."""

    def __init__(self) -> None:
        self._buckets: list[dict[int, Routed]] = [{}]
        self._lowest = 0
        self.num_routable = 0

    def add(self, worker: Routed) -> None:
        """Let a worker take requests."""
        worker.routable = True
        self.num_routable += 1
        self._put(worker)

    def remove(self, worker: Routed) -> None:
        """Let a worker take no further request."""
        worker.routable = False
        self.num_routable -= 1
        del self._buckets[worker.in_flight][worker.index]

    def begin(self, worker: Routed) -> None:
        """A request starts on a worker."""
        worker.in_flight = level = worker.in_flight + 1
        if worker.routable:
            buckets = self._buckets
            del buckets[level - 1][worker.index]
            if level == len(buckets):
                buckets.append({})
            buckets[level][worker.index] = worker

    def end(self, worker: Routed) -> None:
        """A request ends on a worker."""
        worker.in_flight = level = worker.in_flight - 1
        if worker.routable:
            buckets = self._buckets
            del buckets[level + 1][worker.index]
            buckets[level][worker.index] = worker
            if level < self._lowest:
                self._lowest = level

    def least_loaded(self) -> Routed:
        """Return the routable worker with the fewest live requests, the longest waiting first."""
        buckets, level = self._buckets, self._lowest
        while not buckets[level]:
            level += 1
        self._lowest = level
        return next(iter(buckets[level].values()))

    def other_than(self, faulty: Routed | None) -> Routed:
        """Return the least loaded worker but the one that just failed a request; that one if no other is up.

        A worker that fails at once is always the least loaded, and would draw every retry to itself.
        """
        if faulty is None or not faulty.routable or self.num_routable == 1:
            return self.least_loaded()
        self.remove(faulty)
        other = self.least_loaded()
        self.add(faulty)
        return other

    def _put(self, worker: Routed) -> None:
        level = worker.in_flight
        buckets = self._buckets
        while level >= len(buckets):
            buckets.append({})
        buckets[level][worker.index] = worker
        if level < self._lowest:
            self._lowest = level

    @abstractmethod
    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        """Return the worker for a session's next request.

        Args:
            last: The worker that answered the session's last request, if any.
            group: Number of the group of attempts that the session belongs to.

        There must be a routable worker.
        """


class LeastInFlight(Router):
    """The worker with the fewest live requests (DART's rule)."""

    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        """Return the least loaded worker."""
        return self.least_loaded()


class SessionAffine(Router):
    """The session's last worker, whose prefix cache holds its prompt, unless that one is overloaded.

    Args:
        max_excess: How many live requests more than the least loaded worker the last one may have.
    """

    def __init__(self, max_excess: int = 4) -> None:
        super().__init__()
        self.max_excess = max_excess

    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        """Return the last worker if it is up and not overloaded, else the least loaded one."""
        least = self.least_loaded()
        if last is not None and last.routable and last.in_flight - least.in_flight <= self.max_excess:
            return last
        return least


class InTurn(Router):
    """Workers take new sessions (or groups of them) in turn, whatever their load, and keep them while they are up.

    Args:
        by: What is given in turn: each session (AReaL), or a group of attempts as one (prime-rl).

    Invariant: a session changes its worker only when that one is not up.
    """

    def __init__(self, by: Literal["session", "group"] = "session") -> None:
        super().__init__()
        self._by = by
        self._ring: list[Routed] = []
        self._next = 0

    def add(self, worker: Routed) -> None:
        """Let a worker take requests; it keeps its place in the ring for ever."""
        super().add(worker)
        if worker not in self._ring:
            self._ring.append(worker)

    def pick(self, last: Routed | None, group: int = 0) -> Routed:
        """Return the session's worker, or the next one in turn that is up."""
        if last is not None and last.routable:
            return last
        if self._by == "group":
            place = group
        else:
            place, self._next = self._next, self._next + 1
        ring = self._ring
        for step in range(len(ring)):
            worker = ring[(place + step) % len(ring)]
            if worker.routable:
                return worker
        return self.least_loaded()
