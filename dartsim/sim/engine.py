"""An inference engine with continuous batching, simulated as a fluid batch.

All running sequences advance together, one token per iteration, so one counter ``V`` of iterations serves all of them:
a sequence that joins at ``V`` with ``n`` tokens to sample gets its last one at ``V + n - 1``, and a heap of these finds
the next to finish. Between two changes of the batch only the context length changes, so the time of ``k`` iterations
has a closed form, and the engine moves from reply to reply with **one armed timer**. Iterations that prefill
all that waits are no events either: unless somebody calls meanwhile, what follows them is known in advance.

Times agree with a model of every iteration (``tests/sim/test_engine_accuracy.py``) until memory runs out: then this
model admits a request only when the cache has space for its prompt and whole reply, while the reference preempts.

States of a job: waiting > prefilling > decoding > done, and aborted from any of the first three.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import sqrt
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment
    from dartsim.sim.event_heap import Timer
    from dartsim.sim.gpu import GpuProfile

WAITING: Final = 0
PREFILLING: Final = 1
DECODING: Final = 2
DONE: Final = 3
ABORTED: Final = 4


class EngineJob:
    """One request inside an engine.

    Attributes:
        id: Number in the order of submission to its engine, from 0.
        prompt_tokens: Tokens of the prompt, images included.
        cached_tokens: Prompt tokens found in the prefix cache.
        images: Images that the vision transformer must encode.
        output_tokens: Tokens of the reply.
        state: One of ``WAITING``, ``PREFILLING``, ``DECODING``, ``DONE``, ``ABORTED``.
        payload: Any object of the caller's.
    """

    __slots__ = (
        "_done",
        "_last",
        "_left",
        "cached_tokens",
        "id",
        "images",
        "output_tokens",
        "payload",
        "prompt_tokens",
        "state",
    )

    def __init__(
        self,
        number: int,
        prompt_tokens: int,
        cached_tokens: int,
        images: int,
        output_tokens: int,
        done: Callable[[EngineJob], None],
        payload: Any = None,
    ) -> None:
        self.id = number
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens
        self.images = images
        self.output_tokens = output_tokens
        self.payload = payload
        self.state = WAITING
        self._done = done
        self._left = prompt_tokens - cached_tokens  # prompt tokens not prefilled yet
        self._last = 0  # value of V at which its last token is sampled

    def __repr__(self) -> str:
        state = ("waiting", "prefilling", "decoding", "done", "aborted")[self.state]
        return f"<EngineJob {self.id} {state}: {self.prompt_tokens} tokens in, {self.output_tokens} out>"


class FluidEngine:
    """Continuous batching on one GPU: chunked prefill, first in first out, admission by reserved cache.

    A plan is what the engine is doing: ``_steps`` iterations from ``_start`` to ``_end``. Its effects are applied when
    it ends. A plan with a chunk prefills and is one iteration long; one without decodes until the next completion.
    ``_due`` is when the timer has to fire: at ``_end``, or, if the chunk has all that waits and completes no reply,
    when the next reply completes. A call before then first applies the effects of the plans that have ended.

    Invariant: the cache reserved by admitted jobs never exceeds the profile's capacity.
    """

    __slots__ = (
        "_armed",
        "_base",
        "_budget",
        "_capacity",
        "_chunk",
        "_context",
        "_decode",
        "_due",
        "_end",
        "_fire_timer",
        "_handle",
        "_heap",
        "_image_seconds",
        "_kv_seconds",
        "_max_num_seqs",
        "_num_live",
        "_num_submitted",
        "_pair_seconds",
        "_part",
        "_paused",
        "_planned",
        "_queue",
        "_reserved",
        "_sequence_seconds",
        "_start",
        "_steps",
        "_v",
        "env",
        "profile",
    )

    atomic = False
    """A reply may begin under one version of the weights and end under another."""

    def __init__(self, env: SimEnvironment, profile: GpuProfile) -> None:
        self.env = env
        self.profile = profile
        # The profile's numbers, one attribute lookup away on the hot path; annotated, because mypyc does not compile
        # the profile's class and would keep boxed objects in place of C numbers.
        self._base: tuple[float, ...] = profile.base_seconds
        self._decode: list[float] = profile.decode_seconds
        self._budget: int = profile.token_budget
        self._capacity: int = profile.kv_capacity_tokens
        self._max_num_seqs: int = profile.max_num_seqs
        self._kv_seconds: float = profile.kv_seconds
        self._pair_seconds: float = profile.prefill_pair_seconds
        self._image_seconds: float = profile.image_seconds
        self._sequence_seconds: float = profile.sequence_seconds
        self._fire_timer = self._fire  # bound once: binding it at each arming costs more than the call
        self._handle: Timer | None = None
        self._armed = 0.0
        self._paused: float | None = None  # start of the pause
        self._num_submitted = 0
        self._clear()

    def _clear(self) -> None:
        self._queue: deque[EngineJob] = deque()  # waiting jobs; those at its head may be prefilling
        self._heap: list[tuple[int, int, EngineJob]] = []  # decoding jobs by (V of the last token, id)
        self._chunk: list[EngineJob] | None = None  # jobs prefilled by the running iteration
        self._part = 0  # tokens it prefills of the last of them
        self._planned = False
        self._start = self._end = self._due = 0.0
        self._steps = 0
        self._v = 0
        self._context = 0  # tokens in the context of the decoding jobs
        self._reserved = 0
        self._num_live = 0  # admitted and unfinished jobs

    # Called by workers.

    def submit(
        self,
        prompt_tokens: int,
        cached_tokens: int,
        images: int,
        output_tokens: int,
        done: Callable[[EngineJob], None],
        payload: Any = None,
    ) -> EngineJob:
        """Submit a request; ``done(job)`` is called when its last token is sampled.

        Raises:
            ValueError: If a number is out of range, or the cache can never hold the request.
        """
        if not 0 <= cached_tokens < prompt_tokens or output_tokens < 1 or images < 0:
            raise ValueError(
                "a request needs 0 <= cached_tokens < prompt_tokens, images >= 0 and output_tokens >= 1; "
                f"got {prompt_tokens=}, {cached_tokens=}, {images=}, {output_tokens=}"
            )
        if prompt_tokens + output_tokens > self._capacity:
            raise ValueError(
                f"the cache of {self.profile.name} holds {self._capacity} tokens; a request of "
                f"{prompt_tokens + output_tokens} could never run: shorten it"
            )
        self._catch_up()
        number = self._num_submitted
        self._num_submitted = number + 1
        job = EngineJob(number, prompt_tokens, cached_tokens, images, output_tokens, done, payload)
        self._queue.append(job)
        if self._paused is None:
            now: float = self.env.now
            if not self._planned:
                self._plan(now)
            elif now <= self._start:
                self._plan(self._start)  # the iteration has not begun, so it can still admit the job
            elif self._chunk is not None:
                self._set(self._start, self._end, self._end)
            elif len(self._queue) == 1:
                self._cut(now)  # if others wait before it, nothing changes
        return job

    def abort(self, job: EngineJob) -> bool:
        """Remove a job and free its cache at once; return whether it was still inside.

        An iteration that has begun runs to its end, unless no job is left.
        """
        if job.state >= DONE:
            return False
        self._catch_up()
        if job.state == DECODING:
            self._stop_at_boundary()
            self._heap.remove((job._last, job.id, job))
            heapify(self._heap)
            self._context -= job.prompt_tokens + job.output_tokens - (job._last - self._v)
        else:
            self._queue.remove(job)
        if job.state != WAITING:
            self._reserved -= job.prompt_tokens + job.output_tokens
            self._num_live -= 1
        job.state = ABORTED
        if not self._queue and not self._heap:
            self._stop()
        elif self._paused is not None:
            self._due = self._end
        elif self.env.now <= self._start:
            self._plan(self._start)
        else:
            self._set(self._start, self._end, self._end)
        return True

    def abort_all(self) -> list[EngineJob]:
        """Remove all jobs, as when the server process is killed; return them in order of submission."""
        jobs = sorted((*self._queue, *(entry[2] for entry in self._heap)), key=lambda job: job.id)
        for job in jobs:
            job.state = ABORTED
        self._stop()
        self._clear()
        return jobs

    def forget(self) -> list[tuple[EngineJob, int]]:
        """Remove all jobs, as when requests are aborted; return each with the number of tokens generated so far."""
        self._catch_up()
        v = self._v
        now = self.env.now if self._paused is None else self._paused
        if self._planned and self._chunk is None and self._heap and now > self._start:
            v += min(self._steps, self._boundary(now)[0]) - 1
        generated = {job.id: job.output_tokens - (last - v) for last, _, job in self._heap}
        return [(job, generated.get(job.id, 0)) for job in self.abort_all()]

    def pause(self) -> None:
        """Freeze all progress, as while weights load with requests kept."""
        if self._paused is None:
            self._catch_up()
            self._paused = self.env.now
            self._disarm()

    def resume(self) -> None:
        """Continue after ``pause``; everything that was running ends later by the length of the pause."""
        if self._paused is None:
            return
        now = self.env.now
        pause = now - self._paused
        self._paused = None
        if not self._planned:
            self._plan(now)
            return
        # Rounding must not move the end into the past.
        end = max(now, self._end + pause)
        self._set(self._start + pause, end, end)
        if now <= self._start:
            self._plan(self._start)
        elif self._chunk is None and self._queue:
            self._cut(now)

    # Readable at any time, without side effects.

    @property
    def num_running(self) -> int:
        """Number of jobs that hold cache: prefilling and decoding."""
        return self._num_live

    @property
    def num_waiting(self) -> int:
        """Number of jobs not admitted yet."""
        return len(self._queue) + len(self._heap) - self._num_live

    @property
    def num_jobs(self) -> int:
        """Number of jobs inside, waiting or running."""
        return len(self._queue) + len(self._heap)

    @property
    def seconds_until_still(self) -> float:
        """Seconds from a pause until nothing moves: 0, because everything freezes at once."""
        return 0.0

    @property
    def paused(self) -> bool:
        return self._paused is not None

    @property
    def kv_tokens(self) -> int:
        """Cache reserved by admitted jobs, tokens."""
        return self._reserved

    # The engine.

    def _plan(self, start: float) -> None:
        """Decide what runs from ``start``, which is not in the past."""
        heap = self._heap
        num_decode = len(heap)
        seconds: float = self._context * self._kv_seconds
        if self._queue:
            chunk: list[EngineJob] = []
            left = self._budget - num_decode
            take = todo = 0
            for job in self._queue:
                if job.state == WAITING and not self._admit(job):
                    break
                chunk.append(job)
                todo = job._left
                take = todo if todo < left else left
                seconds = self._with_prefill(seconds, job, todo, take)
                left -= take
                if not left:
                    break
            if chunk:
                self._part = take
                self._chunk = chunk
                self._steps = 1
                num_seqs = num_decode + len(chunk)
                seconds += self._base[self._budget - left] + num_seqs * self._sequence_seconds
                end = start + seconds
                complete = len(chunk) == len(self._queue)
                self._set(start, end, self._first_reply(end, chunk, todo - take) if complete else end)
                return
        self._chunk = None
        if heap:
            self._steps = steps = heap[0][0] - self._v
            end = start + self._decode_seconds(num_decode, self._context, steps)
            self._set(start, end, end)
        else:
            self._stop()

    def _first_reply(self, end: float, chunk: list[EngineJob], left: int) -> float:
        """Return when a reply completes first, if no call changes anything.

        Args:
            end: End of the chunk.
            chunk: Its jobs, all that wait.
            left: Tokens of the chunk's last job that are prefilled after it.
        """
        num_decode = len(self._heap)
        context = self._context + num_decode
        steps = self._heap[0][0] - self._v if num_decode else chunk[0].output_tokens
        last = chunk[-1]
        for job in chunk:
            if job is not last or not left:
                num_decode += 1
                context += job.prompt_tokens + 1
                if job.output_tokens < steps:
                    steps = job.output_tokens
        steps -= 1
        while left and (steps or not num_decode):
            take = min(left, self._budget - num_decode)
            seconds = self._with_prefill(context * self._kv_seconds, last, left, take)
            end += seconds + (self._base[num_decode + take] + (num_decode + 1) * self._sequence_seconds)
            context += num_decode
            left -= take
            steps -= 1
            if not left:
                steps = min(steps, last.output_tokens - 1) if num_decode else last.output_tokens - 1
                num_decode += 1
                context += last.prompt_tokens + 1
        return end + self._decode_seconds(num_decode, context, steps) if steps else end

    def _with_prefill(self, seconds: float, job: EngineJob, left: int, take: int) -> float:
        """Add the time of prefilling the first ``take`` of a job's ``left`` tokens."""
        before = job.prompt_tokens - left
        seconds += take * (before + 0.5 * (take + 1)) * self._pair_seconds
        if job.images:
            seconds += _images_touched(job, before, take) * self._image_seconds
        return seconds

    def _decode_seconds(self, num_decode: int, context: int, steps: int) -> float:
        """Return the time of iterations that only decode; ``context`` is that of the first."""
        growth = 0.5 * num_decode * self._kv_seconds * (steps - 1)
        return steps * (context * self._kv_seconds + self._decode[num_decode] + growth)

    def _set(self, start: float, end: float, due: float) -> None:
        """Let the plan run from ``start`` to ``end``; a timer armed for before ``due`` stays and rearms itself."""
        self._planned = True
        self._start = start
        self._end = end
        self._due = due
        handle = self._handle
        if handle is not None:
            if self._armed <= due:
                return
            handle.cancel()
        self._armed = due
        self._handle = self.env.call_at(due, self._fire_timer)

    def _admit(self, job: EngineJob) -> bool:
        """Reserve cache for a waiting job; return whether there was space."""
        reserved = self._reserved + job.prompt_tokens + job.output_tokens
        if reserved > self._capacity or self._num_live >= self._max_num_seqs:
            return False
        self._reserved = reserved
        self._num_live += 1
        job.state = PREFILLING
        return True

    def _fire(self) -> None:
        """Apply the effects of the plan that ends now, make the next plan, and report finished jobs."""
        if self._armed < self._due:  # the plan was moved to later after the timer was armed
            self._handle = None
            self._set(self._start, self._end, self._due)
            return
        self._catch_up()
        self._handle = None
        end = self._end
        self._finish_plan()
        heap, v = self._heap, self._v
        done: list[EngineJob] | None = None
        while heap and heap[0][0] <= v:
            job = heappop(heap)[2]
            job.state = DONE
            held = job.prompt_tokens + job.output_tokens
            self._context -= held
            self._reserved -= held
            self._num_live -= 1
            if done is None:
                done = [job]
            else:
                done.append(job)
        self._plan(end)
        if done is not None:
            for job in done:
                job._done(job)

    def _catch_up(self) -> None:
        """Go on with the plans that follow chunks which have ended since the last call."""
        while self._end < self._due and self._end <= self.env.now and self._paused is None:
            self._finish_plan()
            self._plan(self._end)

    def _finish_plan(self) -> None:
        """Count the plan's tokens, and turn its prefilled jobs into decoding ones."""
        self._v += self._steps
        self._context += self._steps * len(self._heap)
        if self._chunk is not None:
            self._finish_chunk(self._chunk, self._v)

    def _finish_chunk(self, chunk: list[EngineJob], v: int) -> None:
        """Turn the jobs whose prompts are complete into decoding ones; each gets its first token."""
        queue = self._queue
        last = chunk[-1]
        for job in chunk:
            if job.state != PREFILLING:  # aborted during the iteration
                continue
            if job is last and job._left > self._part:
                job._left -= self._part
                continue
            queue.popleft()
            job._left = 0
            job.state = DECODING
            job._last = v + job.output_tokens - 1
            heappush(self._heap, (job._last, job.id, job))
            self._context += job.prompt_tokens + 1

    def _cut(self, now: float) -> None:
        """End a decode-only plan with the current iteration, and plan what follows."""
        steps, boundary = self._boundary(now)
        if steps < self._steps:  # otherwise it ends there anyway
            self._v += steps
            self._context += steps * len(self._heap)
            self._plan(boundary)

    def _stop_at_boundary(self) -> None:
        """End a decode-only plan with the current iteration, before one of its jobs is removed."""
        now = self.env.now if self._paused is None else self._paused
        if self._chunk is not None or now <= self._start:
            return
        steps, boundary = self._boundary(now)
        if steps < self._steps:
            self._steps = steps
            self._end = boundary
            if self._paused is None:
                self._set(self._start, boundary, boundary)

    def _boundary(self, now: float) -> tuple[int, float]:
        """Return which iteration of a decode-only plan runs at ``now``, counted from 1, and when it ends.

        Each iteration reads one more token per sequence than the one before, so n of them take ``n * first + half * n *
        (n - 1)``.
        """
        num_decode = len(self._heap)
        if not num_decode:  # all were aborted, and others wait for the end of the iteration
            return self._steps, self._end
        start = self._start
        half = 0.5 * num_decode * self._kv_seconds
        first = self._decode[num_decode] + self._context * self._kv_seconds
        elapsed = now - start
        b = first - half
        steps = int(2.0 * elapsed / (b + sqrt(b * b + 4.0 * half * elapsed))) + 1
        end = start + steps * (first + half * (steps - 1))
        while end < now:  # because of rounding
            steps += 1
            end = start + steps * (first + half * (steps - 1))
        return steps, end

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _stop(self) -> None:
        """Become idle."""
        self._disarm()
        self._planned = False
        self._chunk = None
        self._due = self._end
        self._v = 0  # keeps the counter small; no job refers to it


def _images_touched(job: EngineJob, before: int, take: int) -> int:
    """Count the images first touched by the ``take`` tokens after the first ``before``.

    The first chunk that touches an image must encode all of it. Images are spread evenly over the tokens to prefill.
    """
    start = job.cached_tokens
    if take == job.prompt_tokens - start:
        return job.images
    new = job.prompt_tokens - start
    return -(-job.images * (before - start + take) // new) + (-job.images * (before - start) // new)
