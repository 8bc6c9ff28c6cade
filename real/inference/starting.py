"""``started``: the workers of a pool, begun beside one another and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from dartsim.real.inference.worker import VllmWorker

Begin = Callable[[VllmWorker], Awaitable[None]]
"""Starts a worker, and does what else it needs before it serves."""


async def _start(worker: VllmWorker) -> None:
    await worker.start()


@asynccontextmanager
async def started(workers: Sequence[VllmWorker], *, at_once: int, begin: Begin = _start) -> AsyncIterator[None]:
    """Start workers, and close them all at the end.

    An engine's start is minutes of reading and compiling: one after the other, a pool's start is their sum. More at
    once than the machine's cores and disk carry only makes each of them slow, and too late.

    Invariant: when this is left, by whatever way, each worker was closed, and so no engine of ours runs.

    Args:
        workers: None of them started.
        at_once: Most starts under way.
        begin: How one is started.

    Raises:
        WorkerFault: The first start that failed; those under way are cancelled, those that wait never begin.
    """
    places, failed = asyncio.Semaphore(at_once), False

    async def one(worker: VllmWorker) -> None:
        nonlocal failed
        async with places:
            if failed:  # its place came free by a failure, and its cancellation is on the way
                return
            try:
                await begin(worker)
            except BaseException:
                failed = True
                raise

    try:
        try:
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(one(worker), name=f"start-{worker.engine.name}")
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None
        yield
    finally:
        await _close(workers)


async def _close(workers: Sequence[VllmWorker]) -> None:
    """Close all, also if whoever waits for it is cancelled meanwhile."""
    if not workers:
        return
    closing = [asyncio.create_task(worker.close(), name=f"close-{worker.engine.name}") for worker in workers]
    try:
        await asyncio.wait(closing)
    except asyncio.CancelledError:
        await asyncio.wait(closing)
        raise
    for task in closing:
        task.result()
