"""An inference engine that computes one batch after the other, all that waits at once: a local worker's model.

``real.local.LocalWorker`` is such an engine: small, in a thread, without continuous batching. A batch of ``n`` takes
``batch_seconds + n * request_seconds``, times a factor that is drawn; nothing interrupts it, and what comes meanwhile
is the next one. How long prompts and replies are is in the measured seconds, not in the model.

States of a job: waiting > decoding (its batch is being computed) > done, and aborted from the first two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import ConfigError
from dartsim.sim.control_loop import ControlLoop, seen
from dartsim.sim.engine import ABORTED, DECODING, DONE, WAITING, EngineJob

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment


class BatchEngine:
    """One batch at a time, first in first out; what ``SimWorker`` asks of an engine.

    Requests that are handed in at the same instant to an idle engine are one batch.

    Invariant: at most one batch of at most ``max_batch`` jobs is computed, and none begins while it is paused.

    Args:
        env: The environment whose clock and timers it uses.
        batch_seconds: Of a batch, whatever its size.
        request_seconds: Of each request in it.
        max_batch: Most requests of a batch.
        factor: Draws what a batch's time is multiplied with.
        control: The event loop that begins and ends batches, when that is so busy that they wait for it.
    """

    atomic = True
    """A batch is computed by one version of the weights: they never change within it."""

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
        self.env = env
        self.batch_seconds = batch_seconds
        self.request_seconds = request_seconds
        self.max_batch = max_batch
        self._factor = factor
        self._control = control
        self._waiting: list[EngineJob] = []
        self._batch: list[EngineJob] | None = None
        self._end = 0.0
        self._paused = False
        self._beginning = False
        self._stills: list[asyncio.Future[None]] = []
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
        """Hand in a request; ``done(job)`` is called when its batch is computed. Its lengths change nothing."""
        job = EngineJob(self._num_submitted, prompt_tokens, cached_tokens, images, output_tokens, done, payload)
        self._num_submitted += 1
        self._waiting.append(job)
        self._wake()
        return job

    def abort(self, job: EngineJob) -> bool:
        """Take a job out; return whether it was still inside. A batch that has begun is computed to its end."""
        if job.state >= DONE:
            return False
        if job.state == WAITING:
            self._waiting.remove(job)
        job.state = ABORTED
        return True

    def abort_all(self) -> list[EngineJob]:
        """Take all jobs out, and return them in order of submission."""
        jobs = [job for job in (*(self._batch or ()), *self._waiting) if job.state < DONE]
        for job in jobs:
            job.state = ABORTED
        self._waiting.clear()
        return jobs

    def pause(self) -> None:
        """Begin no further batch; the present one is computed to its end."""
        self._paused = True

    def resume(self) -> None:
        """Go on with what waits."""
        self._paused = False
        self._wake()

    @property
    def stands_still_in(self) -> float:
        """Seconds until the present batch is computed; 0 if there is none."""
        return 0.0 if self._batch is None else max(0.0, self._end - self.env.now)

    async def stood_still(self) -> None:
        """Wait until there is no batch, and until the event loop, if there is one, has seen to its replies."""
        while self._batch is not None:
            still: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._stills.append(still)
            await still

    @property
    def num_jobs(self) -> int:
        """Jobs inside, waiting or in the batch."""
        return len(self._waiting) + sum(job.state == DECODING for job in self._batch or ())

    @property
    def busy(self) -> bool:
        """Whether at least one job is inside."""
        return self.num_jobs > 0

    def _wake(self) -> None:
        """Begin a batch once all that happens at this instant has handed in its requests."""
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
        else:  # a thread is asked to do it, which is another turn of the loop
            self._control.soon(self._compute, len(batch), partial(self._control.soon, self._finish))

    def _compute(self, size: int, then: Callable[[], object]) -> None:
        seconds = self.env.delay((self.batch_seconds + self.request_seconds * size) * self._factor())
        self._end = self.env.now + seconds
        self.env.call_at(self._end, then)

    def _finish(self) -> None:
        batch, self._batch = self._batch or [], None
        if self._control is None:
            # What waits already goes first: who is answered now comes back too late for the next batch.
            self._begin()
        for job in batch:
            if job.state == DECODING:
                job.state = DONE
                job._done(job)
        if self._control is not None:
            # The same requests, for nobody has seen his reply yet; but the loop sees to the replies before the thread.
            self._begin()
        stills, self._stills = self._stills, []
        for still in stills:
            if self._control is None:
                seen(still)
            else:
                self._control.soon(seen, still)
