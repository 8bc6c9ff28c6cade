import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import ConfigError
from dartsim.sim import SimEnvironment, run_virtual
from dartsim.sim.host import SimHost, mib, place


def machine(**options):
    return SimHost(asyncio.get_running_loop().env, **options)


def now():
    return asyncio.get_running_loop().time()


def test_starts_are_one_at_a_time_or_k():
    async def ends(concurrent_starts):
        host = machine(concurrent_starts=concurrent_starts)
        seen = []

        async def start():
            await host.starts.take()
            await host.run(2.0, 0.0)
            host.starts.give_back()
            seen.append(now())

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(start())
        return seen

    assert run_virtual(ends(1)) == [2.0, 4.0, 6.0, 8.0]
    assert run_virtual(ends(3)) == [2.0, 2.0, 2.0, 4.0]


def test_memory_is_waited_for_in_order():
    async def main():
        host = machine(memory_gib=2)
        await host.memory.take(1024)
        seen = []

        async def user(mib):
            await host.memory.take(mib)
            seen.append((mib, now()))

        async with asyncio.TaskGroup() as group:
            group.create_task(user(2048))
            group.create_task(user(512))
            await asyncio.sleep(3)
            host.memory.give_back(1024)
            await asyncio.sleep(1)
            host.memory.give_back(2048)
        return seen, host.memory.level

    assert run_virtual(main()) == ([(2048, 3.0), (512, 4.0)], 1536)


def test_a_cancelled_wait_for_memory_lets_smaller_ones_behind_it_pass():
    async def main():
        host = machine(memory_gib=2)
        await host.memory.take(1024)
        big = asyncio.create_task(host.memory.take(2048))
        await asyncio.sleep(0)
        small = asyncio.create_task(host.memory.take(512))
        await asyncio.sleep(1)
        big.cancel()
        await small
        return now(), host.memory.level

    assert run_virtual(main()) == (1.0, 512)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 3)), max_size=8),
    st.integers(0, 8),
)
def test_nothing_is_kept_by_whoever_is_cancelled(users, cancel_after):
    async def use(host, delay, seconds, gib):
        await asyncio.sleep(delay)
        await host.memory.take(mib(gib))
        try:
            await host.starts.take()
            try:
                await host.run(seconds, 1.0)
            finally:
                host.starts.give_back()
        finally:
            host.memory.give_back(mib(gib))

    async def main():
        host = machine(cores=1, memory_gib=4)
        tasks = [asyncio.create_task(use(host, *user)) for user in users]
        await asyncio.sleep(cancel_after)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return host

    host = run_virtual(main())
    assert host.memory.level == host.memory.capacity
    assert (host.starts.count, list(host.starts.queue), host.memory.get_queue) == (0, [], [])
    assert (host.cores.num_jobs, host.cores.demand) == (0, 0.0)


def test_too_many_desktops_are_refused_with_what_fits():
    env = SimEnvironment()
    hosts = [SimHost(env, memory_gib=256, name="big"), SimHost(env, memory_gib=8, name="small")]
    assert len(place(61, hosts, 4.2)) == 61
    with pytest.raises(
        ConfigError,
        match=r"62 desktops of 4.2 GiB do not fit on 2 hosts, with room for 61 \(big 60, small 1\)",
    ):
        place(62, hosts, 4.2)
    with pytest.raises(ConfigError, match="do not fit on 0"):
        place(1, [], 1.0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 30))
def test_placement_fills_no_host_beyond_its_memory(gibs, num_envs):
    hosts = [SimHost(SimEnvironment(), memory_gib=gib, name=str(i)) for i, gib in enumerate(gibs)]
    if num_envs > sum(gib // 2 for gib in gibs):
        with pytest.raises(ConfigError):
            place(num_envs, hosts, 2.0)
        return
    placed = place(num_envs, hosts, 2.0)
    counts = [placed.count(host) for host in hosts]
    assert sum(counts) == num_envs
    for host, count in zip(hosts, counts, strict=True):
        assert count <= host.memory_gib // 2
        if count < host.memory_gib // 2:
            assert count >= max(counts) - 1  # in turn: only a full host has fewer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_gib": 0}, "memory_gib must be > 0"),
        ({"concurrent_starts": 0}, "concurrent_starts must be at least 1"),
        ({"cores": 0}, "cores must be > 0"),
    ],
)
def test_impossible_hosts_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        SimHost(SimEnvironment(), **options)
