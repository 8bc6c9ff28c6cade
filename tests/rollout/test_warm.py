"""``WarmProvider``: spares are booted ahead, places are never exceeded, and nothing is left behind."""

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.rollout import RolloutConfig
from dartsim.core.errors import EnvStartFailed
from dartsim.rollout import WarmProvider
from dartsim.rollout.warm import fitting_spares

FAILED = EnvStartFailed("no display")


def make(fakes, provider, *, num_envs=1, num_spares=1, **config):
    recorder = fakes.recorder(num_envs + num_spares)
    tracks = recorder.desktops.tracks[num_envs:]
    return WarmProvider(provider, RolloutConfig(num_envs=num_envs, **config), tracks, recorder), recorder


async def stop(task):
    task.cancel()
    await asyncio.wait([task])


@given(
    st.lists(st.floats(0.0, 600.0), min_size=1, max_size=5),
    st.floats(0.5, 16.0),
    st.floats(0.0, 700.0),
    st.integers(1, 60),
    st.integers(0, 20),
)
def test_spares_leave_the_slots_and_the_reserve_their_memory(hosts, desktop, reserve, slots, wanted):
    config = RolloutConfig(num_envs=slots, warm_envs=wanted, host_reserve_gib=reserve)
    spares = fitting_spares(config, hosts, desktop)
    assert 0 <= spares <= wanted
    places = sum(math.floor(max(0.0, host - reserve) / desktop) for host in hosts)
    assert spares == 0 or slots + spares <= places
    assert spares == wanted or slots + spares + 1 > places


def test_spares_are_not_limited_by_memory_that_nothing_counts():
    config = RolloutConfig(num_envs=38, warm_envs=4)
    assert fitting_spares(config, [256.0, math.inf], 4.2) == fitting_spares(config, [1.0], 0.0) == 4


async def test_the_next_attempt_finds_a_booted_desktop(fakes):
    provider = fakes.Provider()  # boots in 2 s, closes in 1 s
    warm, recorder = make(fakes, provider)
    running = asyncio.create_task(warm.run())
    await asyncio.sleep(0)
    first = await warm.start(0)
    assert fakes.now() == 2.0
    await asyncio.sleep(10.0)
    assert warm.num_ready == 1
    await first.close()
    second = await warm.start(0)
    assert fakes.now() == 12.0, "neither a tear-down nor a boot was waited for"
    assert second.env is not first.env
    await asyncio.sleep(1.5)
    assert first.env.closed_at == 13.0
    assert recorder.counts["warm/hits"] == 1
    await second.close()
    await stop(running)
    assert provider.live == 0


async def test_a_slot_that_waits_for_a_place_takes_a_spare_that_is_ready_first(fakes):
    provider = fakes.Provider()
    warm, _ = make(fakes, provider, num_envs=1, num_spares=1)
    running = asyncio.create_task(warm.run())
    await asyncio.sleep(0)  # the spare boots in one of the two places
    first = await warm.start(0)
    second = await warm.start(0)
    assert fakes.now() == 2.0
    third = asyncio.create_task(warm.start(0))
    await asyncio.sleep(5.0)
    assert not third.done(), "three desktops would be more than there are places"
    await first.close()
    fresh = await third
    assert fakes.now() == 10.0, "a tear-down of 1 s, then a boot of 2 s"
    await second.close()
    await fresh.close()
    await stop(running)
    assert provider.live == 0


async def test_a_slot_that_is_cancelled_gives_back_what_it_was_handed(fakes):
    provider = fakes.Provider()
    warm, _ = make(fakes, provider)
    running = asyncio.create_task(warm.run())
    held = [await warm.start(0) for _ in range(2)]
    waiting = asyncio.create_task(warm.start(0))
    await asyncio.sleep(0)
    await held[0].close()
    await asyncio.sleep(1.0)
    waiting.cancel()
    await asyncio.wait([waiting])
    again = await warm.start(0)
    for desktop in (held[1], again):
        await desktop.close()
    await stop(running)
    assert provider.live == 0


async def test_a_spare_that_does_not_start_is_tried_again_and_counted(fakes):
    provider = fakes.Provider([(2.0, FAILED), (2.0, FAILED)])
    warm, recorder = make(fakes, provider)
    running = asyncio.create_task(warm.run())
    await asyncio.sleep(60.0)
    assert recorder.counts["fault/start"] == 2
    assert warm.num_ready == 1
    await stop(running)
    assert provider.live == 0
    assert fakes.spent(recorder.desktops)["WAIT_START"] == 15.0
