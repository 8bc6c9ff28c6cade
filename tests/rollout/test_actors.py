"""``Rollout``: every admitted attempt is handed over exactly once, whatever happens to it."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.rollout import LimitsConfig, RolloutConfig
from dartsim.core.errors import EnvBroken, EnvStartFailed
from dartsim.core.types import Ending
from dartsim.rollout import EnvCluster, Rollout
from dartsim.sim import run_virtual


def make(fakes, source, provider, *, num_envs=1, service=None, limits=None, **options):
    recorder = fakes.recorder(num_envs)
    cluster = EnvCluster(provider, RolloutConfig(num_envs=num_envs), recorder, **options)
    service = service or fakes.Sessions(actions=["click", "DONE"])
    return Rollout(cluster, service, source, limits=limits or LimitsConfig(), recorder=recorder), cluster, recorder


# One attempt: start 2, set-up 4, two turns of 3 + 1, score 2, tear-down 1.
ATTEMPT_SECONDS = 17.0


async def test_slots_play_until_there_is_no_more_work(fakes):
    source, provider = fakes.Source(5), fakes.Provider()
    rollout, cluster, recorder = make(fakes, source, provider, num_envs=2)
    await rollout.run()
    assert fakes.now() == 3 * ATTEMPT_SECONDS
    assert sorted(t.attempt.id for t in source.finished) == [0, 1, 2, 3, 4]
    assert {t.ending for t in source.finished} == {Ending.DONE}
    assert (provider.live, cluster.leases, len(provider.desktops)) == (0, {}, 5)
    assert fakes.spent(recorder.desktops)["OFF"] == ATTEMPT_SECONDS


async def test_an_attempt_starts_when_it_is_admitted_and_is_handed_over_before_its_desktop_is_torn_down(fakes):
    source = fakes.Source(2)
    rollout, _, _ = make(fakes, source, fakes.Provider())
    await rollout.run()
    times = [(t.started, t.finished) for t in source.finished]
    assert times == [(0.0, ATTEMPT_SECONDS - 1.0), (ATTEMPT_SECONDS, 2 * ATTEMPT_SECONDS - 1.0)]


async def test_an_attempt_whose_desktop_never_starts_is_masked_and_the_slot_rests_and_goes_on(fakes):
    source = fakes.Source(2)
    provider = fakes.Provider([(2.0, EnvStartFailed("no"))] * 2)
    rollout, cluster, _ = make(fakes, source, provider, start_tries=2)
    await rollout.run()
    failed, done = source.finished
    assert (failed.ending, failed.reward, failed.cause) == (Ending.BROKEN, None, "EnvStartFailed")
    assert (failed.started, failed.finished) == (0.0, 9.0)
    assert (done.ending, done.started) == (Ending.DONE, 9.0 + 10.0)
    assert cluster.leases == {}


async def test_a_slot_that_starts_nothing_rests_longer_each_time_until_a_desktop_comes_up(fakes):
    source = fakes.Source(5)
    provider = fakes.Provider([(0.0, EnvStartFailed("no"))] * 4)
    rollout, _, _ = make(fakes, source, provider, start_tries=1, rest_seconds=15.0)
    await rollout.run()
    starts = [t.started for t in source.finished]
    assert [t.ending for t in source.finished] == [Ending.BROKEN] * 4 + [Ending.DONE]
    assert [later - earlier for earlier, later in pairwise(starts)] == [5.0, 10.0, 15.0, 15.0]


async def test_the_session_of_an_attempt_whose_desktop_never_starts_is_closed(fakes):
    service = fakes.Sessions()
    provider = fakes.Provider([(2.0, EnvStartFailed("no"))])
    rollout, _, _ = make(fakes, fakes.Source(1), provider, service=service, start_tries=1)
    await rollout.run()
    assert [session.closed_at for session in service.sessions] == [2.0]


async def test_the_session_of_a_broken_desktop_is_closed_before_its_tear_down(fakes):
    service = fakes.Sessions()
    provider = fakes.Provider(faults={"reset": EnvBroken("x")}, close=50.0)
    rollout, _, _ = make(fakes, fakes.Source(1), provider, service=service)
    await rollout.run()
    assert [session.closed_at for session in service.sessions] == [6.0]
    assert fakes.now() == 56.0


async def test_a_bug_in_the_pool_ends_the_rollout_and_leaves_no_desktop(fakes):
    provider, source = fakes.Provider(), fakes.Source(6)
    service = fakes.Sessions(actions=["act", ZeroDivisionError()])
    rollout, cluster, _ = make(fakes, source, provider, num_envs=3, service=service)
    with pytest.raises(ExceptionGroup):
        await rollout.run()
    assert (provider.live, cluster.leases) == (0, {})
    assert len(source.finished) == len(source.admitted)


@given(
    moment=st.one_of(st.integers(0, 40), st.floats(0.0, 40.0)),
    num_envs=st.integers(1, 4),
    starts=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, EnvStartFailed("x")])), max_size=8),
    faults=st.dictionaries(st.sampled_from(["reset", "step", "evaluate"]), st.just(EnvBroken("x")), max_size=1),
)
def test_whenever_it_is_cancelled_every_admitted_attempt_is_handed_over_once(fakes, moment, num_envs, starts, faults):
    async def main():
        source, provider = fakes.Source(12), fakes.Provider(starts, faults=faults)
        rollout, cluster, _ = make(fakes, source, provider, num_envs=num_envs, start_tries=2)
        task = asyncio.get_running_loop().create_task(rollout.run())
        await asyncio.sleep(moment)
        task.cancel()
        await asyncio.wait([task])
        handed = Counter(t.attempt.id for t in source.finished)
        assert handed == Counter(attempt.id for attempt in source.admitted)
        assert (provider.live, cluster.leases) == (0, {})
        cancelled = [t for t in source.finished if t.ending is Ending.CANCELLED]
        assert all((t.reward, t.cause) == (None, "run ended") and t.finished >= moment for t in cancelled)
        assert all(t.masked for t in source.finished if t.ending is not Ending.DONE)

    run_virtual(main())


async def test_the_tear_down_of_an_attempt_that_is_withdrawn_as_it_ends_is_not_cut_short(fakes):
    source, provider = fakes.Source(1), fakes.Provider()
    rollout, _, _ = make(fakes, source, provider)
    running = asyncio.get_running_loop().create_task(rollout.run())
    await asyncio.sleep(ATTEMPT_SECONDS - 2.0)  # it is being scored
    asyncio.get_running_loop().call_at(ATTEMPT_SECONDS - 1.0, rollout.withdraw, 0)
    await running
    assert [t.ending for t in source.finished] == [Ending.DONE]
    assert (provider.desktops[0].closed_at, fakes.now()) == (ATTEMPT_SECONDS, ATTEMPT_SECONDS)
