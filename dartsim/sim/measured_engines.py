"""Inference engines measured from outside: by the time of replies and the number of concurrent requests.

Lengths of prompts and replies are part of the measured seconds, not of the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dartsim.core.errors import ConfigError
from dartsim.sim.control_loop import ControlLoop, complete
from dartsim.sim.engine import ABORTED, DECODING, DONE, WAITING, EngineJob

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment
    from dartsim.sim.event_heap import Timer


class MeasuredEngine:
    """What both measured engines share. ``SimWorker`` uses them as it uses a ``FluidEngine``."""

    def __init__(self, env: SimEnvironment, factor: Callable[[], float]) -> None:
        self.env = env
        self._factor = factor
        self._paused = False
        self._num_submitted = 0

    def submit(
        self,
        prompt_tokens: int,
        cached_tokens: int,
        images: int,
        output_tokens: int,
        done: Callable[[EngineJob], None],
        payload: Any = None,
    ) -> EngineJob:
        """Submit a request; ``done(job)`` is called when it is answered. Its lengths have no effect."""
        job = EngineJob(self._num_submitted, prompt_tokens, cached_tokens, images, output_tokens, done, payload)
        self._num_submitted += 1
        self._enter(job)
        return job

    def _enter(self, job: EngineJob) -> None:
        raise NotImplementedError


class BatchEngine(MeasuredEngine):
    """One batch at a time, first in, first out: ``real.learners.local.LocalWorker``, which has no continuous batching.

    A batch of ``n`` takes ``batch_seconds + n * request_seconds``, times a factor, and cannot be interrupted. Requests
    that arrive meanwhile form the next batch. Requests that reach an idle engine at the same instant are one batch.

    States of a job: waiting > decoding (its batch is being computed) > done, and aborted from the first two.
    Invariant: at most one batch, of at most ``max_batch`` jobs, is computed at a time, and none begins during a pause.

    Args:
        env: The environment whose clock and timers it uses.
        batch_seconds: Fixed time of a batch.
        request_seconds: Additional time for each of its requests.
        max_batch: Maximum number of requests in a batch.
        factor: Draws the factor on a batch's time.
        control: The event loop that begins and ends batches, if it is so busy that they queue for it.
    """

    atomic = True

    def __init__(
        self,
        env: SimEnvironment,
        *,
        batch_seconds: float,
        request_seconds: float,
        max_batch: int = 64,
        factor: Callable[[], float] = lambda: 1.0,
        control: ControlLoop | None = None,
    ) -> None:
        if batch_seconds + request_seconds <= 0.0 or min(batch_seconds, request_seconds) < 0.0 or max_batch < 1:
            raise ConfigError(
                "a batch engine needs batch_seconds and request_seconds >= 0, not both 0, and max_batch >= 1; "
                f"got {batch_seconds=}, {request_seconds=}, {max_batch=}"
            )
        super().__init__(env, factor)
        self.batch_seconds = batch_seconds
        self.request_seconds = request_seconds
        self.max_batch = max_batch
        self._control = control
        self._waiting: list[EngineJob] = []
        self._batch: list[EngineJob] | None = None
        self._end = 0.0
        self._beginning = False
        self._stills: list[asyncio.Future[None]] = []

    @override
    def _enter(self, job: EngineJob) -> None:
        self._waiting.append(job)
        self._wake()

    def abort(self, job: EngineJob) -> bool:
        if job.state >= DONE:
            return False
        if job.state == WAITING:
            self._waiting.remove(job)
        job.state = ABORTED
        return True

    def abort_all(self) -> list[EngineJob]:
        jobs = [job for job in (*(self._batch or ()), *self._waiting) if job.state < DONE]
        for job in jobs:
            job.state = ABORTED
        self._waiting.clear()
        return jobs

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake()

    @property
    def seconds_until_still(self) -> float:
        return 0.0 if self._batch is None else max(0.0, self._end - self.env.now)

    async def wait_until_still(self) -> None:
        """Wait until no batch is running and the control loop, if any, has handled its replies."""
        while self._batch is not None:
            still: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._stills.append(still)
            await still

    @property
    def num_jobs(self) -> int:
        return len(self._waiting) + sum(job.state == DECODING for job in self._batch or ())

    def _wake(self) -> None:
        """Begin a batch once all requests of this instant have been submitted."""
        if self._batch is None and not self._beginning and self._waiting and not self._paused:
            self._beginning = True
            soon = asyncio.get_running_loop().call_soon if self._control is None else self._control.soon
            soon(self._begin)

    def _begin(self) -> None:
        self._beginning = False
        if self._batch is not None or self._paused or not self._waiting:
            return
        batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
        for job in batch:
            job.state = DECODING
        self._batch = batch
        if self._control is None:
            self._compute(len(batch), self._finish)
        else:  # a thread computes it, which takes another turn of the loop
            self._control.soon(self._compute, len(batch), partial(self._control.soon, self._finish))

    def _compute(self, size: int, then: Callable[[], object]) -> None:
        seconds = self.env.delay((self.batch_seconds + self.request_seconds * size) * self._factor())
        self._end = self.env.now + seconds
        self.env.call_at(self._end, then)

    def _finish(self) -> None:
        batch, self._batch = self._batch or [], None
        if self._control is None:
            # Waiting requests go first: the next request of a client that is answered now is too late for this batch.
            self._begin()
        for job in batch:
            if job.state == DECODING:
                job.state = DONE
                job._done(job)
        if self._control is not None:
            # The next batch has the same requests, as no client has seen its reply; but the loop handles replies first.
            self._begin()
        stills, self._stills = self._stills, []
        for still in stills:
            if self._control is None:
                complete(still)
            else:
                self._control.soon(complete, still)


class SharedEngine(MeasuredEngine):
    """All requests at once, slowed down by their number: continuous batching as measured by ``dartsim cluster``.

    With ``n`` requests inside, each progresses as if it took ``alone_seconds + (n - 1) * beside_seconds``. All progress
    at one rate, so each is described by the progress at which it ends, and one armed timer is enough.

    Args:
        env: The environment whose clock and timers it uses.
        alone_seconds: Time of a request that is alone, > 0.
        beside_seconds: Additional time for each other request inside, >= 0.
        factor: Draws the factor on a request's time.
    """

    atomic = False

    def __init__(
        self,
        env: SimEnvironment,
        *,
        alone_seconds: float,
        beside_seconds: float,
        factor: Callable[[], float] = lambda: 1.0,
    ) -> None:
        if alone_seconds <= 0.0 or beside_seconds < 0.0:
            raise ConfigError(
                "a shared engine needs a time for a request alone > 0 and for each beside it >= 0; "
                f"got {alone_seconds=}, {beside_seconds=}"
            )
        super().__init__(env, factor)
        self.alone_seconds = alone_seconds
        self.beside_seconds = beside_seconds
        self._heap: list[tuple[float, int, EngineJob]] = []  # by the progress at which a request ends
        self._progress = 0.0
        self._since = 0.0
        self._timer: Timer | None = None

    @override
    def _enter(self, job: EngineJob) -> None:
        self._advance()
        job.state = DECODING
        heappush(self._heap, (self._progress + self.env.delay(self._factor()), job.id, job))
        self._arm()

    def abort(self, job: EngineJob) -> bool:
        if job.state >= DONE:
            return False
        self._advance()
        job.state = ABORTED
        self._heap = [entry for entry in self._heap if entry[2] is not job]
        heapify(self._heap)
        self._arm()
        return True

    def abort_all(self) -> list[EngineJob]:
        self._advance()
        jobs = sorted((entry[2] for entry in self._heap), key=lambda job: job.id)
        for job in jobs:
            job.state = ABORTED
        self._heap.clear()
        self._arm()
        return jobs

    def pause(self) -> None:
        self._advance()
        self._paused = True
        self._arm()

    def resume(self) -> None:
        self._advance()
        self._paused = False
        self._arm()

    @property
    def seconds_until_still(self) -> float:
        return 0.0

    @property
    def num_jobs(self) -> int:
        return len(self._heap)

    def _seconds(self) -> float:
        """Return the time of a request at the current number of requests."""
        return self.alone_seconds + self.beside_seconds * (len(self._heap) - 1)

    def _advance(self) -> None:
        """Update the progress to the current time."""
        now = self.env.now
        if self._heap and not self._paused:
            self._progress += (now - self._since) / self._seconds()
        elif not self._heap:
            self._progress = 0.0  # keeps it small; no request refers to it
        self._since = now

    def _arm(self) -> None:
        """Arm the timer for the end of the next request, if it progresses."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and not self._paused:
            left = max(0.0, self._heap[0][0] - self._progress)
            self._timer = self.env.call_in(left * self._seconds(), self._finish)

    def _finish(self) -> None:
        """Answer the request that is due, and those due at the same time up to rounding."""
        self._timer = None
        self._advance()
        due = self._heap[0][0]
        self._progress = max(self._progress, due)
        done = []
        while self._heap and self._heap[0][0] <= self._progress * (1.0 + 1e-12):
            done.append(heappop(self._heap)[2])
        self._arm()
        for job in done:
            job.state = DONE
            job._done(job)
