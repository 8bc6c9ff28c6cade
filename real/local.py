"""Worker and learner in threads of this process, for one machine and small models.

Each worker has its own model, so that workers can serve different versions and compute in parallel: torch releases the
interpreter while it computes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from dartsim.core.errors import DartsimError, LearnerFault, WorkerFault, WorkerRestarted
from dartsim.core.ports import ContentModel, Learner
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Batch, Reply, Request, UpdateResult, Version, Weights

P = ParamSpec("P")
R = TypeVar("R")

MAX_BATCH = 64
"""Most requests of one batch."""


class SamplingPolicy(ContentModel, Protocol):
    """A model that is called from one thread at a time."""

    def prompt_tokens(self, request: Request) -> int:
        """Return the length of a request's prompt."""


@dataclass(frozen=True, slots=True)
class _Pending:
    request: Request
    reply: asyncio.Future[Reply]


class LocalWorker:
    """An inference engine in this process; implements ``dartsim.core.ports.PolicyWorker``.

    Waiting requests are computed as one batch; those that arrive in the meantime form the next one. Weights change
    between two batches, so every reply is computed by one version.

    Attributes:
        on_call: Called with its number, ``batch`` or ``put`` (of new weights), the seconds in its thread, the seconds
            that it waited for the event loop before and after, and the number of requests.
    """

    def __init__(self, index: int, policy: SamplingPolicy, *, version: Version = 0, max_batch: int = MAX_BATCH) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch must be at least 1, got {max_batch}")
        self.index = index
        self.version = version
        self.on_call: Callable[[int, str, float, float, int], None] | None = None
        self._policy = policy
        self._max_batch = max_batch
        self._waiting: list[_Pending] = []
        self._computing: list[_Pending] = []
        self._model = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None

    async def generate(self, request: Request) -> Reply:
        pending = _Pending(request, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name=f"worker-{self.index}")
        return await pending.reply

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        if mode.kills_requests:
            killed, self._waiting = [*self._computing, *self._waiting], []
            for pending in killed:
                _fail(pending, WorkerRestarted(f"worker {self.index} was restarted for version {weights.version}"))
        async with self._model:
            await self._timed("put", 0, partial(self._policy.add, weights))
            self.version = weights.version

    async def _serve(self) -> None:
        try:
            while self._waiting:
                async with self._model:
                    await self._batch()
        finally:
            self._serving = None

    async def _batch(self) -> None:
        live = [pending for pending in self._waiting if not pending.reply.done()]
        batch, self._waiting = live[: self._max_batch], live[self._max_batch :]
        if not batch:
            return
        self._computing = batch
        try:
            requests = [pending.request for pending in batch]
            replies = await self._timed("batch", len(batch), partial(self._compute, requests, self.version))
        except Exception as exc:
            fault = exc if isinstance(exc, WorkerFault) else WorkerFault(f"worker {self.index} failed: {exc!r}")
            for pending in batch:
                _fail(pending, fault)
            return
        finally:
            self._computing = []
        for pending, reply in zip(batch, replies, strict=True):
            if not pending.reply.done():
                pending.reply.set_result(reply)

    async def _timed(self, what: str, size: int, call: Callable[[], R]) -> R:
        """Call in a thread, and report the seconds there and those of the loop around it."""
        started = time.perf_counter()
        result, seconds = await _in_thread(_with_seconds, call)
        if self.on_call is not None:
            self.on_call(self.index, what, seconds, max(0.0, time.perf_counter() - started - seconds), size)
        return result

    def _compute(self, requests: list[Request], version: Version) -> list[Reply]:
        contents = self._policy.compute(requests, version)
        lengths = [self._policy.prompt_tokens(request) for request in requests]
        return [
            Reply(content.action, version, version, self.index, length, len(content.tokens), *content[1:])
            for content, length in zip(contents, lengths, strict=True)
        ]


class LocalLearner:
    """A learner in a thread of this process; implements ``dartsim.core.ports.Learner``."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner
        self._lock = threading.Lock()

    async def update(self, batch: Batch) -> UpdateResult:
        """Train in a thread. If canceled, the thread finishes the update and its result is dropped."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            result = await asyncio.to_thread(self._train, batch)
        except DartsimError:
            raise
        except Exception as exc:
            raise LearnerFault(f"update {batch.update} failed: {exc!r}") from exc
        return replace(result, metrics={"update_seconds": loop.time() - started, **result.metrics})

    def _train(self, batch: Batch) -> UpdateResult:
        with self._lock:  # an abandoned update may still be running
            return asyncio.run(self._inner.update(batch))


def _fail(pending: _Pending, fault: WorkerFault) -> None:
    if not pending.reply.done():
        pending.reply.set_exception(fault)


def _with_seconds(call: Callable[[], R]) -> tuple[R, float]:
    """Return the result of a call and its duration."""
    started = time.perf_counter()
    return call(), time.perf_counter() - started


async def _in_thread(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call in a thread, and return only after it has ended, even if canceled: until then it uses the model."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
