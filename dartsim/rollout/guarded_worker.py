"""``GuardedWorker``: checks a worker's answers and turns its errors into faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dartsim.core.answers import check_reply, worker_fault
from dartsim.core.ports import LentWorker, PolicyWorker
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Reply, Request, Version, Weights


class GuardedWorker:
    """Passes calls to a worker; any answer or error that breaks its port becomes a ``WorkerFault``.

    Args:
        worker: The worker.
        version: The version that it serves initially.
    """

    def __init__(self, worker: PolicyWorker, version: Version) -> None:
        self._worker = worker
        self._versions = {version}
        """Versions that it may serve: the first, and all that it was asked to load."""

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

    async def release(self) -> None:
        try:
            await cast(LentWorker, self._worker).release()
        except BaseException as error:
            fault = worker_fault(error)
            raise fault from fault.__cause__


def guard(workers: Sequence[PolicyWorker], version: Version) -> list[PolicyWorker]:
    """Return workers whose answers are checked."""
    return [GuardedWorker(worker, version) for worker in workers]
