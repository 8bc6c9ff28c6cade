"""An inference engine that serves all its requests at once and slows down by their number: a measured server's model.

What ``dartsim measure`` can see of a server such as vLLM is how long replies take and how many there were beside them.
With ``n`` requests inside, each progresses so that it would take ``alone_seconds + (n - 1) * beside_seconds``. Nobody
waits for a place, and lengths of prompts and replies are in the measured seconds, not in the model.

All requests progress at one rate, so each is known by the progress at which it ends, and one armed timer is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import ConfigError
from dartsim.sim.engine import ABORTED, DECODING, DONE, EngineJob

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment, Timer


class SharedEngine:
    """Continuous batching seen from outside; what ``SimWorker`` asks of an engine.

    Args:
        env: The environment whose clock and timers it uses.
        alone_seconds: Of a request that is alone, > 0.
        beside_seconds: How much longer for each other request inside, >= 0.
        factor: Draws what a request's time is multiplied with.
    """

    atomic = False
    """Requests may begin under one version of the weights and end under another."""

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
        self.env = env
        self.alone_seconds = alone_seconds
        self.beside_seconds = beside_seconds
        self._factor = factor
        self._heap: list[tuple[float, int, EngineJob]] = []  # by the progress at which a request ends
        self._progress = 0.0
        self._since = 0.0
        self._timer: Timer | None = None
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
        """Hand in a request; ``done(job)`` is called when it is answered. Its lengths change nothing."""
        self._advance()
        job = EngineJob(self._num_submitted, prompt_tokens, cached_tokens, images, output_tokens, done, payload)
        self._num_submitted += 1
        job.state = DECODING
        heappush(self._heap, (self._progress + self.env.delay(self._factor()), job.id, job))
        self._arm()
        return job

    def abort(self, job: EngineJob) -> bool:
        """Take a job out; return whether it was still inside."""
        if job.state >= DONE:
            return False
        self._advance()
        job.state = ABORTED
        self._heap = [entry for entry in self._heap if entry[2] is not job]
        heapify(self._heap)
        self._arm()
        return True

    def abort_all(self) -> list[EngineJob]:
        """Take all jobs out, and return them in order of submission."""
        self._advance()
        jobs = sorted((entry[2] for entry in self._heap), key=lambda job: job.id)
        for job in jobs:
            job.state = ABORTED
        self._heap.clear()
        self._arm()
        return jobs

    def pause(self) -> None:
        """Freeze all progress."""
        self._advance()
        self._paused = True
        self._arm()

    def resume(self) -> None:
        """Go on where ``pause`` stopped."""
        self._advance()
        self._paused = False
        self._arm()

    @property
    def stands_still_in(self) -> float:
        """Seconds from a pause until nothing moves: 0, everything freezes at once."""
        return 0.0

    @property
    def num_jobs(self) -> int:
        """Jobs inside."""
        return len(self._heap)

    @property
    def busy(self) -> bool:
        """Whether at least one job is inside."""
        return bool(self._heap)

    def _seconds(self) -> float:
        """Return what a request takes among those that are inside now."""
        return self.alone_seconds + self.beside_seconds * (len(self._heap) - 1)

    def _advance(self) -> None:
        """Let progress come up to the clock."""
        now = self.env.now
        if self._heap and not self._paused:
            self._progress += (now - self._since) / self._seconds()
        elif not self._heap:
            self._progress = 0.0  # keeps the number small; no request refers to it
        self._since = now

    def _arm(self) -> None:
        """Wake at the end of the next request, if there is one and time passes for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and not self._paused:
            left = max(0.0, self._heap[0][0] - self._progress)
            self._timer = self.env.call_in(left * self._seconds(), self._finish)

    def _finish(self) -> None:
        """Answer the request that is due, and those that are due with it but for rounding."""
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
