"""Worker and learner in this process: real computation in threads, beside the event loop.

For one machine and small models. Each worker has a model of its own, so that workers can serve different versions
at once and compute side by side; torch lets go of the interpreter while it computes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from dartsim.core.errors import DartsimError, LearnerFault, WorkerFault, WorkerRestarted
from dartsim.core.ports import Learner
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Batch, Content, Reply, Request, UpdateResult, Version, Weights

P = ParamSpec("P")
R = TypeVar("R")

MAX_BATCH = 64
"""Most requests that a worker computes at once."""


class SamplingPolicy(Protocol):
    """What computes replies, such as ``VlmPolicy``; called from one thread at a time."""

    def add(self, weights: Weights) -> None:
        """Take the weights of a version."""

    def compute(self, requests: Sequence[Request], version: Version) -> list[Content]:
        """Answer requests with the weights of a version, in one batch."""

    def prompt_tokens(self, request: Request) -> int:
        """Return the length of a request's prompt."""


@dataclass(frozen=True, slots=True)
class _Asked:
    request: Request
    answer: asyncio.Future[Reply]


class LocalWorker:
    """An inference engine in this process; implements ``dartsim.core.ports.PolicyWorker``.

    All requests that wait are computed as one batch; those that come meanwhile are the next one. Weights change
    between two batches, so every reply was computed whole by one version.

    Args:
        index: Its number in the pool.
        policy: Its model, which nobody else uses.
        version: What the policy serves.
        max_batch: Most requests of a batch.

    Attributes:
        on_call: Told its number, ``batch`` or ``put`` (of new weights), the seconds that took in its thread, those
            that it waited for the event loop to begin it and to go on with it, and the requests in it.
    """

    def __init__(self, index: int, policy: SamplingPolicy, *, version: Version = 0, max_batch: int = MAX_BATCH) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch must be at least 1, got {max_batch}")
        self.index = index
        self.version = version
        self.on_call: Callable[[int, str, float, float, int], None] | None = None
        self._policy = policy
        self._max_batch = max_batch
        self._waiting: list[_Asked] = []
        self._computing: list[_Asked] = []
        self._model = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None

    async def generate(self, request: Request) -> Reply:
        """Answer one request, together with those that wait beside it."""
        asked = _Asked(request, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name=f"worker-{self.index}")
        return await asked.answer

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Take new weights after the batch that is being computed."""
        if mode.kills_requests:
            killed, self._waiting = [*self._computing, *self._waiting], []
            for asked in killed:
                _fail(asked, WorkerRestarted(f"worker {self.index} was restarted for version {weights.version}"))
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
        live = [asked for asked in self._waiting if not asked.answer.done()]
        batch, self._waiting = live[: self._max_batch], live[self._max_batch :]
        if not batch:
            return
        self._computing = batch
        try:
            requests = [asked.request for asked in batch]
            replies = await self._timed("batch", len(batch), partial(self._compute, requests, self.version))
        except Exception as exc:
            fault = exc if isinstance(exc, WorkerFault) else WorkerFault(f"worker {self.index} failed: {exc!r}")
            for asked in batch:
                _fail(asked, fault)
            return
        finally:
            self._computing = []
        for asked, reply in zip(batch, replies, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(reply)

    async def _timed(self, what: str, size: int, call: Callable[[], R]) -> R:
        """Call in a thread, and tell how long that took there, and how long the loop took around it."""
        asked = time.perf_counter()
        result, seconds = await _in_thread(_with_seconds, call)
        if self.on_call is not None:
            self.on_call(self.index, what, seconds, max(0.0, time.perf_counter() - asked - seconds), size)
        return result

    def _compute(self, requests: list[Request], version: Version) -> list[Reply]:
        contents = self._policy.compute(requests, version)
        lengths = [self._policy.prompt_tokens(request) for request in requests]
        return [
            Reply(content.action, version, version, self.index, length, len(content.tokens), *content[1:])
            for content, length in zip(contents, lengths, strict=True)
        ]


class LocalLearner:
    """A learner in a thread of this process; implements ``dartsim.core.ports.Learner``.

    Args:
        inner: What trains, without waiting for anything.
    """

    def __init__(self, inner: Learner) -> None:
        self._inner = inner
        self._one = threading.Lock()

    async def update(self, batch: Batch) -> UpdateResult:
        """Train beside the event loop. An update that is cancelled is finished by its thread, and forgotten."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            result = await asyncio.to_thread(self._train, batch)
        except DartsimError:
            raise
        except Exception as exc:
            raise LearnerFault(f"update {batch.update} failed: {exc!r}") from exc
        return replace(result, metrics={"update_seconds": loop.time() - begun, **result.metrics})

    def _train(self, batch: Batch) -> UpdateResult:
        with self._one:  # a forgotten update may still compute
            return asyncio.run(self._inner.update(batch))


def _fail(asked: _Asked, fault: WorkerFault) -> None:
    if not asked.answer.done():
        asked.answer.set_exception(fault)


def _with_seconds(call: Callable[[], R]) -> tuple[R, float]:
    """Call, and return the result and how long it took."""
    begun = time.perf_counter()
    return call(), time.perf_counter() - begun


async def _in_thread(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call in a thread, and return only when it has ended, also if cancelled: nobody may touch the model before."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
