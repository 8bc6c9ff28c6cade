"""``WorkerSlot``: a worker as the pool keeps it."""

from __future__ import annotations

import asyncio

from dartsim.core.ports import PolicyWorker
from dartsim.core.types import Version
from dartsim.observe import Track
from dartsim.rollout.routers import Routed


class WorkerSlot(Routed):
    """A worker of the pool.

    It is up (routable), draining (live requests, takes no new one), loading, or down (its last load
    failed, or its engine ended). ``version`` is what it serves; while it is loading it serves nothing.

    Attributes:
        apart: Whether it is down and comes back by itself; weight changes pass it by until then.
    """

    __slots__ = ("apart", "drained", "engine", "track", "version")

    def __init__(self, index: int, engine: PolicyWorker, track: Track, version: Version) -> None:
        super().__init__(index)
        self.engine = engine
        self.track = track
        self.version = version
        self.drained: asyncio.Future[None] | None = None
        self.apart = False
