"""The base class of routers: keeps the routable workers in order of their load.

No router looks at every worker while most are up, so a turn costs the same with 4 workers as with 400.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from dartsim.core.compiled import mypyc_attr
from dartsim.core.registry import ComponentSection


@mypyc_attr(allow_interpreted_subclasses=True)
class Routed:
    """A worker as routers see it.

    Attributes:
        index: Its number, from 0.
        in_flight: Its live requests; ``Router.begin`` and ``end`` count them.
        routable: Whether it is up, so that requests may go to it. ``Router.add`` and ``remove`` set it.
    """

    __slots__ = ("in_flight", "index", "routable")

    def __init__(self, index: int) -> None:
        self.index = index
        self.in_flight = 0
        self.routable = False


@mypyc_attr(allow_interpreted_subclasses=True)
class Router(ABC):
    """Keeps the routable workers in order of their load and picks one for a session.

    A router is registered as ``@register("router", NAME)``. In simulated runs, random numbers come from
    ``asyncio.get_running_loop().rng(name)``, so that equal seeds give equal runs. Only the virtual loop has ``rng``; a
    router for real runs uses ``numpy.random.default_rng`` with a seed among its parameters.
    """

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection

    def __init__(self, parameters: ComponentSection | None = None) -> None:
        self._buckets: list[dict[int, Routed]] = [{}]
        self._lowest = 0
        self.num_routable = 0

    def add(self, worker: Routed) -> None:
        """Make a worker routable."""
        worker.routable = True
        self.num_routable += 1
        self._put(worker)

    def remove(self, worker: Routed) -> None:
        """Make a worker not routable; its live requests continue."""
        worker.routable = False
        self.num_routable -= 1
        del self._buckets[worker.in_flight][worker.index]

    def begin(self, worker: Routed) -> None:
        """Count a request that starts on a worker."""
        worker.in_flight = level = worker.in_flight + 1
        if worker.routable:
            buckets = self._buckets
            del buckets[level - 1][worker.index]
            if level == len(buckets):
                buckets.append({})
            buckets[level][worker.index] = worker

    def end(self, worker: Routed) -> None:
        """Count a request that ends on a worker."""
        worker.in_flight = level = worker.in_flight - 1
        if worker.routable:
            buckets = self._buckets
            del buckets[level + 1][worker.index]
            buckets[level][worker.index] = worker
            if level < self._lowest:
                self._lowest = level

    def least_loaded(self) -> Routed:
        """Return the routable worker with the fewest live requests, the first to reach that number."""
        buckets, level = self._buckets, self._lowest
        while not buckets[level]:
            level += 1
        self._lowest = level
        return next(iter(buckets[level].values()))

    def other_than(self, faulty: Routed | None) -> Routed:
        """Return the least loaded worker except one that just failed a request, unless no other is up.

        A worker that fails at once is always the least loaded and would attract every retry.
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

        At least one worker must be routable.
        """
