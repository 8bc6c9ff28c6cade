"""The same inference engine, simulated iteration by iteration: what ``engine.FluidEngine`` is compared with.

Written to be read, not to be fast: every iteration is one event, the cache is counted in blocks of 16 tokens
that are taken as tokens come, and when none is left the youngest running request is preempted and later
computed again from its first token (vLLM's ``recompute``). Requests are admitted first in first out when the
cache has room for their prompt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment
    from dartsim.sim.gpu import GpuProfile

BLOCK_TOKENS = 16


@dataclass(eq=False, slots=True)
class ReferenceJob:
    """One request.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        cached_tokens: How many of them are in the prefix cache at its first admission.
        images: Images that are not in the prefix cache.
        output_tokens: Tokens of the reply.
        done: Called when the last one is sampled.
        payload: Whatever the caller wants to find again.
        computed: Tokens whose keys and values are in the cache.
        generated: Tokens sampled.
        blocks: Blocks of the cache it holds.
    """

    prompt_tokens: int
    cached_tokens: int
    images: int
    output_tokens: int
    done: Callable[[ReferenceJob], None]
    payload: Any = None
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    recomputing: bool = field(default=False)

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be sampled; 1 while it decodes."""
        return self.prompt_tokens + self.generated - self.computed

    def images_between(self, first: int, last: int) -> int:
        """Count the images encoded while tokens ``first`` to ``last`` of the prompt are computed.

        An image is encoded by the chunk that first touches it; images lie evenly in the tokens to prefill.
        """
        start = 0 if self.recomputing else self.cached_tokens
        new = self.prompt_tokens - start

        def begun(token: int) -> int:
            return ceil(self.images * min(token - start, new) / new)

        return begun(last) - begun(first)


class ReferenceEngine:
    """Continuous batching, one iteration an event.

    Args:
        env: The environment whose clock and timers it uses.
        profile: The GPU.
    """

    def __init__(self, env: SimEnvironment, profile: GpuProfile) -> None:
        self.env = env
        self.profile = profile
        self.waiting: deque[ReferenceJob] = deque()
        self.running: list[ReferenceJob] = []
        self.free_blocks = profile.kv_capacity_tokens // BLOCK_TOKENS
        self.num_iterations = 0
        self.num_preemptions = 0
        self.tokens_generated = 0
        self._active = False

    def submit(
        self,
        prompt_tokens: int,
        cached_tokens: int,
        images: int,
        output_tokens: int,
        done: Callable[[ReferenceJob], None],
        payload: Any = None,
    ) -> ReferenceJob:
        """Hand in a request; the arguments are those of ``FluidEngine.submit``."""
        job = ReferenceJob(prompt_tokens, cached_tokens, images, output_tokens, done, payload)
        self.waiting.append(job)
        if not self._active:
            self._active = True
            self.env.call_in(0.0, self._begin)
        return job

    def _begin(self) -> None:
        """Schedule one iteration and wait for its end."""
        chunks: list[tuple[ReferenceJob, int]] = []
        left = self.profile.token_budget
        preempted = False
        for job in list(self.running):
            if job not in self.running:  # preempted for one before it
                continue
            take = min(job.remaining, left)
            while not self._allocate(job, job.computed + take):
                preempted = True
                if self._preempt_youngest() is job:
                    break
            else:
                chunks.append((job, take))
                left -= take
        while self.waiting and left and not preempted and len(self.running) < self.profile.max_num_seqs:
            job = self.waiting[0]
            if not self._allocate(job, job.prompt_tokens + job.generated):
                break
            self.waiting.popleft()
            self.running.append(job)
            job.computed = 0 if job.recomputing else job.cached_tokens
            take = min(job.remaining, left)
            chunks.append((job, take))
            left -= take
        self._active = bool(chunks)
        if chunks:
            self.num_iterations += 1
            self.env.call_in(self._seconds(chunks), self._end, chunks)

    def _seconds(self, chunks: list[tuple[ReferenceJob, int]]) -> float:
        """Time of an iteration that computes these tokens."""
        decoding = [job for job, _ in chunks if job.generated and job.remaining == 1]
        prefilling = [(job, take) for job, take in chunks if not (job.generated and job.remaining == 1)]
        return self.profile.iteration_seconds(
            num_decode=len(decoding),
            prefill_tokens=sum(take for _, take in prefilling),
            kv_tokens=sum(job.prompt_tokens + job.generated for job in decoding),
            prefill_pairs=sum(take * job.computed + take * (take + 1) / 2 for job, take in prefilling),
            num_images=sum(job.images_between(job.computed, job.computed + take) for job, take in prefilling),
            num_seqs=len(chunks),
        )

    def _end(self, chunks: list[tuple[ReferenceJob, int]]) -> None:
        """Count the computed tokens, sample one for each request that is up to date, and go on."""
        finished = []
        for job, take in chunks:
            job.computed += take
            if job.remaining == 0:
                job.generated += 1
                self.tokens_generated += 1
                if job.generated == job.output_tokens:
                    self.running.remove(job)
                    self._free(job)
                    finished.append(job)
        self._begin()
        for job in finished:
            job.done(job)

    def _allocate(self, job: ReferenceJob, tokens: int) -> bool:
        """Give a job the blocks for its first ``tokens`` tokens; return whether there were enough."""
        need = ceil(tokens / BLOCK_TOKENS) - job.blocks
        if need > self.free_blocks:
            return False
        self.free_blocks -= max(need, 0)
        job.blocks += max(need, 0)
        return True

    def _preempt_youngest(self) -> ReferenceJob:
        """Take the cache from the request admitted last and put it back at the head of the line."""
        job = self.running.pop()
        self._free(job)
        job.recomputing = True
        self.waiting.appendleft(job)
        self.num_preemptions += 1
        return job

    def _free(self, job: ReferenceJob) -> None:
        self.free_blocks += job.blocks
        job.blocks = 0
