import asyncio
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given
from hypothesis import strategies as st

import dartsim.envs  # noqa: F401 - registers
from dartsim.core.errors import EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.types import Task
from dartsim.envs.base import DONE, WAIT
from dartsim.envs.simulated import SOLVE_ACTION, WORK_ACTION, SimDesktop
from dartsim.envs.timed import TimedProvider
from dartsim.sim import run_virtual
from dartsim.sim.env_profiles import OSWORLD, EnvTiming
from dartsim.sim.host import SimHost
from dartsim.sim.latency import Constant

TASK = Task("t", "Save it.")
TIMING = EnvTiming(
    start=Constant(1.0),
    boot=Constant(4.0),
    setup=Constant(2.0),
    step=Constant(0.5),
    evaluate=Constant(3.0),
    teardown=Constant(8.0),
    memory_gib=2.0,
    boot_cores=1.0,
    step_cores=0.5,
)


def desktop():
    return SimDesktop(draw=False, width=4, height=4)


def now():
    return asyncio.get_running_loop().time()


def cluster(num_envs=1, *, timing=TIMING, make_env=desktop, **host):
    machine = SimHost(asyncio.get_running_loop().env, **{"cores": 64, "memory_gib": 64, **host})
    provider = TimedProvider(make_env, timing, [machine], num_envs=num_envs, rng=np.random.default_rng(0))
    return provider, machine


def assert_free(host):
    assert host.memory.level == host.memory.capacity
    assert (host.starts.count, list(host.starts.queue), list(host.memory.get_queue)) == (0, [], [])
    assert (host.cores.num_jobs, host.cores.demand) == (0, 0.0)


def test_an_episode_takes_what_the_profile_says():
    async def main():
        provider, host = cluster()
        times = []
        env = await provider.start(0)
        times.append(now())
        observation = await env.reset(TASK, seed=1)
        times.append(now())
        results = [await env.step(action) for action in (WORK_ACTION, SOLVE_ACTION, DONE)]
        times.append(now())
        score = await env.evaluate()
        times.append(now())
        free_while_running = host.memory.level
        await env.close()
        times.append(now())
        assert_free(host)
        return times, observation, results, score, host.memory.capacity - free_while_running

    times, observation, results, score, held = run_virtual(main())
    assert times == [5.0, 7.0, 8.5, 11.5, 19.5]
    assert [result.over for result in results] == [False, False, True]
    assert results[0].observation == observation
    assert observation.instruction == "Save it."
    assert score == 1.0
    assert held == 2048


def test_a_second_attempt_boots_afresh_where_the_profile_says_so():
    async def main(timing):
        provider, _ = cluster(timing=timing)
        env = await provider.start(0)
        await env.reset(TASK, seed=1)
        before = now()
        await env.reset(TASK, seed=2)
        return now() - before

    assert run_virtual(main(TIMING)) == 8.0 + 1.0 + 4.0 + 2.0
    assert run_virtual(main(replace(TIMING, fresh_per_attempt=False))) == 2.0


def test_fixed_sleeps_are_idle_time_on_top():
    async def main():
        provider, host = cluster(timing=replace(TIMING, settle_seconds=60, evaluate_settle_seconds=20))
        env = await provider.start(0)
        await env.reset(TASK, seed=1)
        done_at, work = now(), host.cores.core_seconds
        await env.evaluate()
        return done_at, now(), host.cores.core_seconds - work

    assert run_virtual(main()) == (67.0, 90.0, 1.5)


def test_content_is_computed_when_the_latency_has_passed():
    seen = []

    class Watched(SimDesktop):
        def _begin(self, task):
            seen.append(("begin", now()))
            super()._begin(task)

        def _act(self, action):
            seen.append((action, now()))

    async def main():
        provider, _ = cluster(make_env=lambda: Watched(draw=False, width=4, height=4))
        env = await provider.start(0)
        await env.reset(TASK, seed=0)
        await env.step(WAIT)

    run_virtual(main())
    assert seen == [("begin", 7.0), (WAIT, 7.5)]


class Breaking(SimDesktop):
    """Fails in the part it is told to."""

    def __init__(self, part):
        super().__init__(draw=False, width=4, height=4)
        self.part = part

    def _begin(self, task):
        self._fail("reset")
        super()._begin(task)

    def _act(self, action):
        self._fail("step")

    def _score(self):
        self._fail("evaluate")
        return 2.0 if self.part == "range" else 0.0

    def close(self):
        self._fail("close")

    def _fail(self, part):
        if self.part == part:
            raise OSError(f"{part} is broken")


async def play(env):
    await env.reset(TASK, seed=0)
    await env.step(WORK_ACTION)
    return await env.evaluate()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        ("reset", EnvBroken, "failed in reset for task t: OSError"),
        ("step", EnvBroken, r"failed in step .*: OSError: step is broken"),
        ("evaluate", ScoreUnavailable, "evaluator failed: OSError"),
        ("range", ScoreUnavailable, "gave 2.0, wanted a number in"),
    ],
)
def test_a_failing_environment_is_a_fault_and_no_reward(wrapped, part, error, message):
    async def main():
        def make():
            return gymnasium.wrappers.OrderEnforcing(Breaking(part)) if wrapped else Breaking(part)

        provider, host = cluster(make_env=make)
        env = await provider.start(0)
        with pytest.raises(error, match=message):
            await play(env)
        await env.close()
        assert_free(host)

    run_virtual(main())


def test_an_environment_that_cannot_be_made_is_a_failed_start():
    async def main():
        def make():
            raise FileNotFoundError("no image")

        provider, host = cluster(make_env=make)
        with pytest.raises(EnvStartFailed, match="'no image'"):
            await provider.start(0)
        assert_free(host)

    run_virtual(main())


def test_misuse_is_not_taken_for_a_fault():
    async def main():
        provider, _ = cluster()
        env = await provider.start(0)
        with pytest.raises(ResetNeeded):
            await env.step(WORK_ACTION)
        with pytest.raises(ResetNeeded):
            await env.evaluate()

    run_virtual(main())


def test_a_foreign_environment_is_scored_by_its_last_reward():
    class Foreign(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (2, 2, 3), np.uint8)
        action_space = gymnasium.spaces.Text(9)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros((2, 2, 3), np.uint8), {}

        def step(self, action):
            return np.ones((2, 2, 3), np.uint8), 0.25, False, action == DONE, {}

    async def main():
        provider, _ = cluster(make_env=Foreign)
        env = await provider.start(0)
        first = await env.reset(TASK, seed=0)
        result = await env.step(DONE)
        return first, result, await env.evaluate()

    first, result, score = run_virtual(main())
    assert (first.instruction, first.screenshot.max()) == ("Save it.", 0)
    assert (result.observation.instruction, result.observation.screenshot.min(), result.over) == (
        "Save it.",
        1,
        True,
    )
    assert score == 0.25


def test_the_same_rng_gives_the_same_times_and_hosts_have_their_own_streams():
    async def main(seed):
        env = asyncio.get_running_loop().env
        hosts = [SimHost(env, name=name) for name in "ab"]
        provider = TimedProvider(desktop, OSWORLD, hosts, num_envs=4, rng=np.random.default_rng(seed))
        assert [host.name for host in provider.hosts] == ["a", "b", "a", "b"]
        desktops = [await provider.start(slot) for slot in range(2)]
        times = []
        for started in desktops:
            await started.reset(TASK, seed=0)
            before = now()
            await started.step(WORK_ACTION)
            times.append(now() - before)
        return times

    one, other = run_virtual(main(1)), run_virtual(main(2))
    assert one == run_virtual(main(1))
    assert one != other
    assert one[0] != one[1]


async def _live(provider, slot, delay, attempts):
    """A slot's life, as a cluster lives it: whatever happens, a started desktop is closed."""
    await asyncio.sleep(delay)
    env = await provider.start(slot)
    try:
        for attempt in range(attempts):
            await env.reset(TASK, seed=attempt)
            await env.step(WORK_ACTION)
            await env.step(DONE)
            await env.evaluate()
    finally:
        await env.close()


eighths = st.integers(0, 400).map(lambda n: n / 8)


@given(
    lives=st.lists(
        st.tuples(st.integers(0, 8).map(float), st.integers(0, 2), st.lists(eighths, max_size=2).map(sorted)),
        min_size=1,
        max_size=5,
    ),
    cores=st.sampled_from([1, 2, 64]),
    starts=st.integers(1, 2),
)
def test_a_cancelled_call_gives_everything_back(lives, cores, starts):
    async def main():
        # Memory for as many desktops as slots; somebody else holds one's, so that starts wait for it too.
        provider, host = cluster(len(lives), cores=cores, concurrent_starts=starts, memory_gib=2 * len(lives))
        other = 2048 if len(lives) > 1 else 0
        await host.memory.take(other)
        loop = asyncio.get_running_loop()
        tasks = []
        for slot, (delay, attempts, cancels) in enumerate(lives):
            task = asyncio.create_task(_live(provider, slot, delay, attempts))
            tasks.append(task)
            for moment in cancels:  # the second one hits the closing of what the first one ended
                loop.call_at(moment, task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
        host.memory.give_back(other)
        assert_free(host)
        # The host still works: a desktop starts there in its nominal time.
        before = now()
        await provider.start(0)
        assert now() - before == pytest.approx(5.0)

    run_virtual(main())
