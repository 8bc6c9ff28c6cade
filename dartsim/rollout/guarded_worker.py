"""``GuardedWorker``: a worker of anybody's code, whose answers are checked and whose errors are faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dartsim.core.answers import check_reply, worker_fault
from dartsim.core.ports import PolicyWorker
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Reply, Request, Version, Weights


class GuardedWorker:
    """Passes on what a worker does; whatever it answers or raises that breaks its port is a ``WorkerFault``.

    Args:
        worker: The worker.
        version: What it serves at first.
    """

    def __init__(self, worker: PolicyWorker, version: Version) -> None:
        self._worker = worker
        self._versions = {version}
        """Those that it may serve: the first, and all that it was told to load."""

    async def generate(self, request: Request) -> Reply:
        try:
            reply: Any = await self._worker.generate(request)
        except BaseException as error:
            fault = worker_fault(error)
            raise fault from fault.__cause__
        return check_reply(reply, self._versions)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        self._versions.add(weights.version)
        try:
            await self._worker.load(weights, mode)
        except TimeoutError:
            raise
        except BaseException as error:
            fault = worker_fault(error)
            raise fault from fault.__cause__


def guarded(workers: Sequence[PolicyWorker], version: Version) -> list[PolicyWorker]:
    """Return workers whose answers are checked."""
    return [GuardedWorker(worker, version) for worker in workers]
