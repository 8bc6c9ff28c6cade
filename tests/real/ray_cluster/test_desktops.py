"""Desktops behind actors: conformance, a host that ends, cancelled starts, hosts side by side."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest

from dartsim.core.errors import ConfigError, EnvBroken, EnvStartFailed, cause_of
from dartsim.core.waiting import pausable
from dartsim.testing import ports as checks

pytestmark = pytest.mark.anyio


@pytest.fixture
def hosts(place):
    """Make ``RayProvider(hosts(2))``."""
    from dartsim.real.ray_cluster.desktops import DesktopHost

    def make(count, opener=None, **want):
        opener = opener or mock_desktops()
        return [place(f"desktops-{n}", lambda: DesktopHost(opener), **want) for n in range(count)]

    return make


def mock_desktops(size=112, start_seconds=0.0, fails=None):
    """Return an opener of mock desktops; a closure, because a test's module is not on the nodes."""

    @asynccontextmanager
    async def opened():
        from dartsim.envs.direct import DirectProvider
        from dartsim.envs.mock.env import MockDesktop

        class Slow(DirectProvider):
            async def start(self, slot):
                await asyncio.sleep(start_seconds)
                if fails:
                    raise EnvStartFailed(fails)
                return await super().start(slot)

        yield Slow(lambda: MockDesktop(width=size, height=size, grammar="compact", grammar_options={}))

    return opened


def mock_task():
    from dartsim.envs.mock.suites import mock_tasks

    return mock_tasks("click_button", 1, 0, 1, held_out=False)[0]


async def test_desktops_on_two_hosts_keep_what_the_port_promises(hosts, monkeypatch):
    from dartsim.real.ray_cluster.desktops import RayProvider

    monkeypatch.setattr(checks, "TASK", mock_task())
    monkeypatch.setattr(checks.check_env, "__defaults__", (checks.TASK,))

    async with RayProvider(hosts(2, mock_desktops(start_seconds=0.05))) as provider:
        await checks.check_env_provider(provider, slots=(0, 1, 2), cancel_after=(0.0, 0.03))
        desktops = [await provider.start(slot) for slot in range(4)]
        assert [desktop.host for desktop in desktops] == [*provider.hosts] * 2
        await asyncio.gather(*(desktop.close() for desktop in desktops))


async def test_screenshots_are_memory_of_this_process(hosts):
    from dartsim.real.ray_cluster.desktops import RayProvider

    async with RayProvider(hosts(1, mock_desktops(size=448))) as provider:
        desktop = await provider.start(0)
        shown = await desktop.reset(mock_task(), seed=1)
        assert shown.screenshot.nbytes > 200_000  # large enough for Ray's store
        assert shown.screenshot.flags.writeable
        stepped, over = await desktop.step("click(x=1, y=1)")
        assert stepped.screenshot.shape == shown.screenshot.shape
        assert isinstance(stepped.screenshot, np.ndarray)
        assert over in (True, False)


def test_a_score_that_waits_on_a_node_pauses_the_deadline_here_and_keeps_its_record(hosts):
    from dartsim.core.types import Score, ScoreRecord
    from dartsim.real.ray_cluster.desktops import RayProvider

    @asynccontextmanager
    async def opener():
        from dartsim.core.waiting import paused_deadline

        class Desktop:
            async def evaluate(self):
                for _ in range(2):
                    with paused_deadline():
                        await asyncio.sleep(0.05)
                return Score(0.5, ScoreRecord("scorer 1", 1.5, ()))

            async def close(self):
                pass

        class Provider:
            async def start(self, slot):
                return Desktop()

        yield Provider()

    changes = []

    class Deadline:
        def pause(self):
            changes.append("pause")

        def resume(self):
            changes.append("resume")

    async def main():
        async with RayProvider(hosts(1, opener)) as provider:
            desktop = await provider.start(0)
            with pausable(Deadline()):
                score = await desktop.evaluate()
        assert score.record.scorer == "scorer 1"
        assert changes[:2] == ["pause", "resume"]
        assert changes == ["pause", "resume"] * (len(changes) // 2)

    asyncio.run(main())


@pytest.mark.slow
async def test_a_host_that_ends_breaks_its_desktops_and_only_those(hosts, end):
    from dartsim.real.ray_cluster.desktops import RayProvider

    async with RayProvider(hosts(2)) as provider:
        first, second = await provider.start(0), await provider.start(1)
        for desktop in (first, second):
            await desktop.reset(mock_task(), seed=1)
        await end(provider.hosts[0])
        async with asyncio.timeout(60.0):
            with pytest.raises(EnvBroken, match="lost") as broken:
                await first.step("click(x=1, y=1)")
            assert cause_of(broken.value) == "host_lost"
            await first.close()
            await first.close()
            assert (await second.step("WAIT")).over is False
            again = await provider.start(2)
            assert again.host is provider.hosts[0]
            await again.reset(mock_task(), seed=1)


async def test_a_start_on_a_host_that_ended_waits_for_it(hosts, end):
    from dartsim.real.ray_cluster.desktops import RayProvider

    async with RayProvider(hosts(1)) as provider:
        await end(provider.hosts[0])
        async with asyncio.timeout(60.0):
            await (await provider.start(0)).reset(mock_task(), seed=1)


async def test_a_desktop_of_a_host_that_was_started_again_is_unknown_there(place):
    from dartsim.real.ray_cluster.desktops import DesktopHost

    host = DesktopHost(mock_desktops())
    await host.close(7)
    with pytest.raises(EnvBroken, match="desktop 7"):
        await host.step(7, "WAIT")
    await host.shut()


def test_a_host_that_cannot_open_its_desktops_is_refused_at_once(hosts):
    from dartsim.real.ray_cluster.desktops import RayProvider

    @asynccontextmanager
    async def nothing():
        raise ConfigError("the image is missing")
        yield

    async def main():
        with pytest.raises(ConfigError, match="the image is missing"):
            async with RayProvider(hosts(1, nothing)):
                pass

    asyncio.run(main())


async def test_without_hosts_a_start_ends_the_run_instead_of_waiting(hosts, end):
    from dartsim.real.ray_cluster.desktops import RayProvider
    from dartsim.real.ray_cluster.errors import ActorGone

    async with RayProvider(hosts(2, max_restarts=0)) as provider:
        await end(provider.hosts[0])
        async with asyncio.timeout(60.0):
            with pytest.raises(EnvStartFailed):
                await provider.start(0)
            await end(provider.hosts[1])
            with pytest.raises(ActorGone, match="no desktop host"):
                await provider.start(1)


def test_a_start_whose_caller_was_canceled_closes_its_desktop():
    from dartsim.real.ray_cluster.desktops import DesktopHost

    alive = set()

    class Desktop:
        async def close(self):
            alive.discard(self)

    class Provider:
        async def start(self, slot):
            await asyncio.sleep(0.01)
            made = Desktop()
            alive.add(made)
            return made

    @asynccontextmanager
    async def opened():
        yield Provider()

    async def main():
        host = DesktopHost(opened)
        starting = asyncio.ensure_future(host.start(1, 0))
        await asyncio.sleep(0)
        await host.close(1)
        await starting
        assert not alive
        await host.shut()

    asyncio.run(main())
