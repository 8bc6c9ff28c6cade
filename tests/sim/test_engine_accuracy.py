"""The fluid engine against a reference that simulates every iteration, with common random numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.sim.engine import FluidEngine
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.gpu import A100_80, H100, GpuProfile
from dartsim.sim.prompts import PromptModel, reply_lengths

BLOCK_TOKENS = 16


@dataclass(eq=False, slots=True)
class ReferenceJob:
    """One request."""

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
    """Continuous batching, one iteration an event."""

    def __init__(self, env: SimEnvironment, profile: GpuProfile) -> None:
        self.env = env
        self.profile = profile
        self.waiting: deque[ReferenceJob] = deque()
        self.running: list[ReferenceJob] = []
        self.free_blocks = profile.kv_capacity_tokens // BLOCK_TOKENS
        self.num_iterations = 0
        self.num_preemptions = 0
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


RESET_SECONDS = 60.0
STEP_SECONDS = 4.0  # lognormal, cv 0.5
WARM_UP = 0.05


class Desktop:
    """Asks, waits for the reply, acts, asks again; after 20 to 50 turns it is set up anew.

    Everything random is drawn beforehand and per desktop, so that both engines meet the same numbers.
    """

    def __init__(self, env: SimEnvironment, engine: Any, log: list, prompts: PromptModel, seed: int) -> None:
        rng = np.random.default_rng((7, seed))
        self.env, self.engine, self.log, self.prompts = env, engine, log, prompts
        self.reply = reply_lengths(np.random.default_rng((8, seed)))
        sigma = np.log(1.25) ** 0.5
        self.steps = iter(rng.lognormal(np.log(STEP_SECONDS) - sigma**2 / 2, sigma, 20_000).tolist())
        self.lengths = iter(rng.integers(20, 51, 2_000).tolist())
        self.turn, self.length = 0, next(self.lengths)
        env.call_in(float(rng.uniform(0, RESET_SECONDS)), self.ask)

    def ask(self) -> None:
        tokens, cached, images = self.prompts.prompt(self.turn, warm=True)
        self.engine.submit(tokens, cached, images, self.reply(), self.answered, self.env.now)

    def answered(self, job: Any) -> None:
        self.log.append((self.env.now, self.env.now - job.payload))
        self.turn += 1
        pause = next(self.steps)
        if self.turn == self.length:
            self.turn, self.length = 0, next(self.lengths)
            pause += RESET_SECONDS
        self.env.call_in(pause, self.ask)


class Outcome(NamedTuple):
    throughput: float
    mean: float
    p95: float
    p99: float
    num_requests: int
    engine: Any


def closed_loop(
    engine_class: Any, num_desktops: int, seconds: float, *, profile: GpuProfile = H100, after_cut: int | None = None
) -> Outcome:
    env = SimEnvironment()
    engine = engine_class(env, profile)
    log: list[tuple[float, float]] = []
    prompts = PromptModel(images_after_cut=after_cut)
    desktops = [Desktop(env, engine, log, prompts, seed) for seed in range(num_desktops)]
    env.run(until=seconds)
    assert len(desktops) == num_desktops
    latencies = np.array([latency for when, latency in log if when > WARM_UP * seconds])
    throughput = len(latencies) / (seconds * (1 - WARM_UP))
    p95, p99 = np.quantile(latencies, [0.95, 0.99])
    return Outcome(throughput, latencies.mean(), p95, p99, len(log), engine)


CASES = [(2, 8_000), (16, 4_000), (64, 4_000)]
MORE_CASES = [(8, 4_000), (24, 3_000), (32, 3_000)]


@pytest.mark.sim
@pytest.mark.parametrize(
    ("num_desktops", "seconds"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES)]
)
def test_fluid_engine_agrees_with_the_reference(num_desktops, seconds):
    reference = closed_loop(ReferenceEngine, num_desktops, seconds)
    fluid = closed_loop(FluidEngine, num_desktops, seconds)
    assert fluid.throughput == pytest.approx(reference.throughput, rel=0.01)
    assert fluid.mean == pytest.approx(reference.mean, rel=0.02)
    assert fluid.p95 == pytest.approx(reference.p95, rel=0.03)


@pytest.mark.sim
def test_fluid_engine_agrees_on_the_other_gpu_and_window():
    reference = closed_loop(ReferenceEngine, 6, 4_000, profile=A100_80, after_cut=3)
    fluid = closed_loop(FluidEngine, 6, 4_000, profile=A100_80, after_cut=3)
    assert fluid.throughput == pytest.approx(reference.throughput, rel=0.01)
    assert fluid.p95 == pytest.approx(reference.p95, rel=0.03)


requests = st.lists(
    st.tuples(
        st.floats(0, 0.5),  # seconds since the arrival before
        st.integers(1, 1_200),
        st.floats(0, 0.99),
        st.integers(0, 3),
        st.integers(1, 80),
    ),
    min_size=1,
    max_size=12,
)


def finish_times(engine_class: Any, arrivals: list[tuple[float, int, float, int, int]]) -> dict[int, float]:
    """Return when each request ends, by its number."""
    env = SimEnvironment()
    # Few requests make queues and chunks, and memory is left.
    engine = engine_class(env, replace(H100, kv_capacity_tokens=100_000, max_num_seqs=4, token_budget=512))
    ends: dict[int, float] = {}
    when = 0.0
    for number, (gap, prompt, share, images, output) in enumerate(arrivals):
        when += gap
        arguments = (prompt, int(share * prompt), images, output, lambda job: ends.update({job.payload: env.now}))
        env.call_at(when, engine.submit, *arguments, number)
    env.run()
    return ends


@given(requests)
@settings(deadline=None)
def test_agrees_with_the_reference_to_the_nanosecond_while_memory_lasts(arrivals):
    fluid, reference = finish_times(FluidEngine, arrivals), finish_times(ReferenceEngine, arrivals)
    assert fluid == pytest.approx(reference, abs=1e-9)
