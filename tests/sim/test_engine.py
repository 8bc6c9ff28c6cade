from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.sim.engine import ABORTED, DONE, FluidEngine
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.gpu import H100

SMALL = replace(H100, kv_capacity_tokens=4_000, max_num_seqs=4, token_budget=512)
"""A GPU on which queues, chunks and a full cache come up with few requests."""


class Bench:
    """An engine whose completions are written down as (job, time)."""

    def __init__(self, profile=H100, engine_class=FluidEngine):
        self.env = SimEnvironment()
        self.engine = engine_class(self.env, profile)
        self.done = []

    def submit(self, prompt=1_000, cached=0, images=0, output=100, payload=None):
        return self.engine.submit(prompt, cached, images, output, self._done, payload)

    def submit_at(self, when, *args):
        self.env.call_at(when, self.submit, *args)

    def _done(self, job):
        self.done.append((job, self.env.now))

    def times(self):
        return [when for _, when in self.done]


def prefill_seconds(tokens, images=0, profile=H100):
    pairs = tokens * (tokens + 1) / 2
    return profile.iteration_seconds(0, tokens, prefill_pairs=pairs, num_images=images)


def decode_seconds(contexts, steps, profile=H100):
    """``steps`` iterations that decode sequences of these contexts together."""
    return sum(
        profile.iteration_seconds(len(contexts), kv_tokens=sum(contexts) + step * len(contexts))
        for step in range(steps)
    )


def test_admission_is_first_in_first_out():
    """The small request behind the large one does not overtake it, although there is room."""
    bench = Bench(SMALL)
    bench.submit(2_000, 0, 0, 100)
    large = bench.submit(2_500, 0, 0, 10)
    small = bench.submit(10, 0, 0, 1)
    bench.env.run(until=0.3)
    assert (bench.engine.num_running, bench.engine.num_waiting) == (1, 2)
    bench.env.run()
    assert [job.id for job, _ in bench.done].index(large.id) == 2
    assert small.state == DONE


@pytest.mark.parametrize("start", [0.0, 0.03, 0.4])  # at the first iteration's start, in it, while decoding
def test_a_pause_shifts_completions_by_its_length(start):
    plain, paused = Bench(), Bench()
    for bench in (plain, paused):
        bench.submit(2_000, 0, 1, 60)
        bench.submit(500, 0, 0, 90)
    paused.env.call_at(start, paused.engine.pause)
    paused.env.call_at(start + 5.0, paused.engine.resume)
    for bench in (plain, paused):
        bench.env.run()
    assert plain.times()[0] > 0.4
    assert paused.times() == pytest.approx([when + 5.0 for when in plain.times()], rel=1e-12)


def test_an_arrival_in_a_pause_is_taken_in_at_the_end_of_the_frozen_iteration():
    bench = Bench()
    bench.submit(100, 0, 0, 50)
    first = prefill_seconds(100)
    frozen = first + decode_seconds([101], 10) - 1e-3
    bench.env.call_at(frozen, bench.engine.pause)
    bench.submit_at(frozen + 1.0, 200, 0, 0, 1)
    bench.env.call_at(frozen + 3.0, bench.engine.resume)
    bench.env.run()
    together = H100.iteration_seconds(1, 200, kv_tokens=111, prefill_pairs=200 * 201 / 2)
    assert bench.times()[0] == pytest.approx(frozen + 3.0 + 1e-3 + together)


def test_abort_frees_the_cache_for_the_next_in_line():
    bench = Bench(SMALL)
    hog = bench.submit(3_000, 0, 0, 900)
    waiting = bench.submit(2_000, 0, 0, 10)
    bench.env.run(until=1.0)
    assert (bench.engine.kv_tokens, bench.engine.num_waiting) == (3_900, 1)
    assert bench.engine.abort(hog)
    assert not bench.engine.abort(hog)
    assert bench.engine.kv_tokens == 0
    bench.env.run()
    assert [job for job, _ in bench.done] == [waiting]
    assert hog.state == ABORTED
    assert bench.engine.kv_tokens == 0


def test_abort_all_returns_every_job_and_leaves_an_idle_engine():
    bench = Bench(SMALL)
    jobs = [bench.submit(900, 0, 0, 500) for _ in range(6)]
    bench.env.run(until=0.5)
    assert bench.engine.abort_all() == jobs
    assert {job.state for job in jobs} == {ABORTED}
    assert (bench.engine.num_jobs, bench.engine.kv_tokens, bench.engine.num_running) == (0, 0, 0)
    again = bench.submit(100, 0, 0, 10)
    bench.env.run()
    assert bench.done == [(again, pytest.approx(0.5 + prefill_seconds(100) + decode_seconds([101], 9)))]


@pytest.mark.parametrize(
    ("prompt", "cached", "images", "output"),
    [(0, 0, 0, 1), (10, 10, 0, 1), (10, -1, 0, 1), (10, 0, -1, 1), (10, 0, 0, 0), (3_990, 0, 0, 11)],
)
def test_impossible_requests_are_refused(prompt, cached, images, output):
    bench = Bench(SMALL)
    with pytest.raises(ValueError, match=r"got|could never run"):
        bench.submit(prompt, cached, images, output)
    assert not bench.engine.num_jobs


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


actions = st.lists(
    st.tuples(st.floats(0, 0.6), st.sampled_from(["abort", "pause", "resume", "abort_all"]), st.integers(0, 11)),
    max_size=8,
)


@given(requests, actions)
@settings(deadline=None)
def test_every_job_ends_once_and_the_cache_is_never_overfull(arrivals, disturbances):
    bench = Bench(SMALL)
    engine, env = bench.engine, bench.env
    jobs, when = [], 0.0

    def check():
        assert 0 <= engine.kv_tokens <= SMALL.kv_capacity_tokens
        assert 0 <= engine.num_running <= SMALL.max_num_seqs
        if not engine.paused and engine.num_jobs:
            assert engine.num_running + engine.num_waiting == engine.num_jobs
            assert env.peek() < float("inf")

    def submit(*args):
        jobs.append(bench.submit(*args))
        check()

    def disturb(action, number):
        if action == "abort":
            if number < len(jobs):
                engine.abort(jobs[number])
        else:
            getattr(engine, action)()
        check()

    for gap, prompt, share, images, output in arrivals:
        when += gap
        env.call_at(when, submit, prompt, int(share * prompt), images, output)
    for at, action, number in disturbances:
        env.call_at(at, disturb, action, number)
    env.call_at(10.0, engine.resume)
    env.run()
    finished = [job for job, _ in bench.done]
    assert len(finished) == len(set(finished))
    assert {job for job in jobs if job.state == DONE} == set(finished)
    assert all(job.state in (DONE, ABORTED) for job in jobs)
    assert (engine.kv_tokens, engine.num_jobs, engine.num_running) == (0, 0, 0)
