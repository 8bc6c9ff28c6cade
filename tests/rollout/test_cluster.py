"""``EnvCluster``: leases are exclusive, starts are retried, and no desktop is left behind."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.rollout import LimitsConfig, RolloutConfig
from dartsim.core.errors import EnvStartFailed, InvariantViolated
from dartsim.rollout import EnvCluster
from dartsim.sim import run_virtual

FAILED = EnvStartFailed("no display")


def make(fakes, provider, *, num_envs=1, start_tries=3, **config):
    recorder = fakes.recorder(num_envs)
    cluster = EnvCluster(provider, RolloutConfig(num_envs=num_envs, **config), recorder, start_tries=start_tries)
    return cluster, recorder


@asynccontextmanager
async def leased(cluster, slot, attempt):
    desktop = await cluster.lease(slot, attempt)
    try:
        yield desktop
    finally:
        await cluster.give_back(slot, desktop)


async def test_a_lease_lends_a_started_desktop_and_closes_it(fakes):
    provider = fakes.Provider()
    cluster, recorder = make(fakes, provider)
    attempt = fakes.attempt()
    async with leased(cluster, 0, attempt) as desktop:
        assert fakes.now() == 2.0
        assert desktop is provider.desktops[0]
        assert cluster.leases == {0: attempt}
        await asyncio.sleep(5.0)
    assert fakes.now() == 8.0
    assert desktop.closed_at == 8.0
    assert cluster.leases == {}
    assert fakes.spent(recorder.desktops) == {"STARTING": 7.0, "CLOSING": 1.0}


async def test_a_lease_is_exclusive(fakes):
    provider = fakes.Provider()
    cluster, _ = make(fakes, provider, num_envs=2)
    async with leased(cluster, 0, fakes.attempt(7)):
        with pytest.raises(InvariantViolated, match="slot 0 serves attempt 7 and was asked to serve attempt 8"):
            async with leased(cluster, 0, fakes.attempt(8)):
                pytest.fail("the slot was lent twice")
        async with leased(cluster, 1, fakes.attempt(8)):
            assert provider.live == 2
    async with leased(cluster, 0, fakes.attempt(8)):
        assert provider.live == 1


async def test_a_desktop_is_lent_to_one_slot(fakes):
    desktop = fakes.Desktop()

    class Provider:
        async def start(self, slot):
            return desktop

    cluster, recorder = make(fakes, Provider(), num_envs=2, start_tries=1)
    async with leased(cluster, 0, fakes.attempt(7)):
        with pytest.raises(EnvStartFailed, match="another slot uses"):
            async with leased(cluster, 1, fakes.attempt(8)):
                pytest.fail("the desktop was lent twice")
        assert desktop.closed_at is None
    assert recorder.counts["fault/start"] == 1
    async with leased(cluster, 1, fakes.attempt(8)) as again:
        assert again is desktop


async def test_after_the_last_try_the_attempt_is_given_up_and_the_slot_is_free(fakes):
    provider = fakes.Provider([(2.0, FAILED)] * 3)
    cluster, recorder = make(fakes, provider, start_tries=3)
    with pytest.raises(EnvStartFailed, match="slot 0: 3 starts failed, the last one: no display"):
        async with leased(cluster, 0, fakes.attempt()):
            pytest.fail("there is no desktop to lend")
    assert fakes.now() == 2.0 + 5.0 + 2.0 + 10.0 + 2.0
    assert (provider.num_starts, recorder.counts["fault/start"]) == (3, 3)
    assert cluster.leases == {}
    async with leased(cluster, 0, fakes.attempt(1)) as desktop:
        assert desktop.closed_at is None


async def test_a_start_that_takes_too_long_is_abandoned(fakes):
    provider = fakes.Provider([(1e9, None), (2.0, None)])
    cluster, recorder = make(fakes, provider, limits=LimitsConfig(start_seconds=600.0))
    async with leased(cluster, 0, fakes.attempt()):
        assert fakes.now() == 600.0 + 5.0 + 2.0
        assert provider.live == 1
    assert recorder.counts["fault/start"] == 1


async def test_failed_starts_are_counted_by_cause(fakes):
    class Refused(EnvStartFailed):
        cause = "refused"

    provider = fakes.Provider([(2.0, FAILED), (1.0, Refused("no")), (1e9, None), (1.0, Refused("no"))])
    cluster, recorder = make(fakes, provider, start_tries=5, limits=LimitsConfig(start_seconds=600.0))
    async with leased(cluster, 0, fakes.attempt()):
        pass
    causes = {name: number for name, number in recorder.counts.items() if name.startswith("start_cause/")}
    assert causes == {"start_cause/EnvStartFailed": 1, "start_cause/refused": 2, "start_cause/start_timeout": 1}
    assert recorder.counts["fault/start"] == 4
    assert recorder.fault_reasons["refused"] == "no"
    assert recorder.fault_reasons["start_timeout"] == "not ready after 600 s"


async def test_a_tear_down_that_takes_too_long_is_counted_and_left(fakes):
    cluster, recorder = make(fakes, fakes.Provider(close=1e9))
    async with leased(cluster, 0, fakes.attempt()):
        pass
    assert fakes.now() == 2.0 + 120.0
    assert recorder.counts["fault/close"] == 1
    assert cluster.leases == {}


# A start that fails until 2, a wait until 7, a start until 9, a body until 19, a tear-down until 20.
@given(moment=st.one_of(st.sampled_from([0.0, 2.0, 7.0, 9.0, 19.0, 20.0]), st.floats(0.0, 21.0)), late=st.booleans())
def test_whenever_a_lease_is_cancelled_no_desktop_is_left_and_the_slot_is_free(fakes, moment, late):
    async def main():
        provider = fakes.Provider([(2.0, FAILED)])
        cluster, _ = make(fakes, provider)

        async def serve():
            async with leased(cluster, 0, fakes.attempt()):
                await asyncio.sleep(10.0)

        loop = asyncio.get_running_loop()
        if late:  # after what is due at the same moment, instead of before it
            task = loop.create_task(serve())
            await asyncio.sleep(0)
            loop.call_at(moment, task.cancel)
        else:
            loop.call_at(moment, lambda: task.cancel())
            task = loop.create_task(serve())
        await asyncio.wait([task])
        assert task.cancelled() or fakes.now() >= 20.0
        assert provider.live == 0
        assert cluster.leases == {}
        async with leased(cluster, 0, fakes.attempt(1)) as desktop:
            assert desktop.closed_at is None
        assert provider.live == 0

    run_virtual(main())
