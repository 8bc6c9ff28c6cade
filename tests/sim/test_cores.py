import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import ConfigError
from dartsim.sim.cores import SharedCores
from dartsim.sim.environment import SimEnvironment


class Mark:
    """A future's two methods, and when it was completed."""

    def __init__(self, env):
        self.env, self.at = env, None

    def done(self):
        return self.at is not None

    def set_result(self, result):
        assert self.at is None
        self.at = self.env.now


def run_jobs(cores, jobs):
    """Run (arrival, seconds, demand, when to leave or None); return the marks and the cores."""
    env = SimEnvironment()
    shared = SharedCores(env, cores)
    marks = [Mark(env) for _ in jobs]

    def arrive(mark, seconds, demand, leave_at):
        job = shared.use(seconds, demand, mark)
        if leave_at is not None:
            env.call_at(leave_at, shared.leave, job)

    for mark, (arrival, seconds, demand, leave_at) in zip(marks, jobs, strict=True):
        env.call_at(arrival, arrive, mark, seconds, demand, leave_at)
    env.run()
    return marks, shared


def test_uncontended_jobs_take_exactly_their_seconds():
    jobs = [(0.1, 0.7, 0.5, None), (0.2, 0.1, 0.5, None), (0.3, 1.3, 1.0, None), (7.7, 0.1, 0.25, None)]
    marks, shared = run_jobs(2, jobs)
    assert [mark.at for mark in marks] == [0.1 + 0.7, 0.2 + 0.1, 0.3 + 1.3, 7.7 + 0.1]
    assert (shared.demand, shared.num_jobs, shared.rate) == (0.0, 0, 1.0)


def test_leaving_twice_or_after_the_end_is_harmless():
    env = SimEnvironment()
    shared = SharedCores(env, 1)
    mark = Mark(env)
    job = shared.use(1, 1, mark)
    env.run()
    shared.leave(job)
    other = shared.use(1, 1, Mark(env))
    shared.leave(other)
    shared.leave(other)
    assert (shared.demand, shared.num_jobs) == (0.0, 0)
    env.run()
    assert env.now == 1.0  # the timer of the job that left did not ring


def test_a_completed_job_may_start_the_next_at_once():
    env = SimEnvironment()
    shared = SharedCores(env, 1)
    last = Mark(env)

    class Chain(Mark):
        def set_result(self, result):
            super().set_result(result)
            shared.use(1, 1, last)

    shared.use(1, 1, Chain(env))
    other = Mark(env)
    shared.use(1, 0, other)
    env.run()
    assert (other.at, last.at) == (1.0, 2.0)


def test_ties_end_in_the_order_of_arrival():
    env = SimEnvironment()
    shared = SharedCores(env, 4)
    order = []

    class Noted(Mark):
        def set_result(self, result):
            order.append(self)

    marks = [Noted(env) for _ in range(5)]
    for mark in marks:
        shared.use(2, 1, mark)
    env.run()
    assert order == marks


@pytest.mark.parametrize("cores", [0, -1, math.nan])
def test_no_cores_are_refused(cores):
    with pytest.raises(ConfigError, match="cores must be > 0"):
        SharedCores(SimEnvironment(), cores)


def reference(cores, jobs):
    """Processor sharing by the definition, in fractions: step from change to change."""
    now, running, ends = Fraction(0), {}, [None] * len(jobs)
    arrivals = sorted((Fraction(arrival), i) for i, (arrival, *_) in enumerate(jobs))
    leaves = sorted((Fraction(leave), i) for i, (*_, leave) in enumerate(jobs) if leave is not None)
    while arrivals or running:
        demand = sum(Fraction(jobs[i][2]) for i in running)
        rate = min(Fraction(1), Fraction(cores) / demand) if demand else Fraction(1)
        times = [now + left / rate for left in running.values()]
        times += [t for t, _ in arrivals[:1]] + [t for t, i in leaves if i in running][:1]
        step = min(times) - now
        now += step
        for i in list(running):
            running[i] -= step * rate
            if running[i] == 0:
                del running[i]
                ends[i] = now
        for t, i in leaves:
            if t == now:
                running.pop(i, None)
        while arrivals and arrivals[0][0] == now:
            _, i = arrivals.pop(0)
            running[i] = Fraction(jobs[i][1])
            if not running[i]:
                ends[i] = now
                del running[i]
    return ends


grid = st.integers(0, 40).map(lambda n: n / 8)
positive = st.integers(1, 40).map(lambda n: n / 8)


@given(
    st.integers(1, 12).map(lambda n: n / 4),
    st.lists(st.tuples(grid, positive, st.integers(1, 12).map(lambda n: n / 4), st.none() | positive), max_size=12),
)
def test_ends_agree_with_the_definition(cores, jobs):
    jobs = [(a, s, d, None if leave is None else a + leave + 0.3137) for a, s, d, leave in jobs]
    marks, shared = run_jobs(cores, jobs)
    for mark, expected in zip(marks, reference(cores, jobs), strict=True):
        assert mark.at == (None if expected is None else pytest.approx(float(expected), abs=1e-9))
    assert (shared.demand, shared.num_jobs, shared.rate) == (0.0, 0, 1.0)
    assert shared.core_seconds <= cores * shared.env.now + 1e-9
