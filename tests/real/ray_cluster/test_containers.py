"""A real container that an actor started: its life, and who removes it when the actor is killed."""

import asyncio

import pytest

from dartsim.config import load
from dartsim.core.errors import EnvFault, EnvStartFailed
from dartsim.run.prepare import prepare

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


async def started(provider):
    """Start a desktop as the control plane does: again, until the actor is back."""
    while True:
        try:
            return await provider.start(0)
        except EnvStartFailed:
            await asyncio.sleep(1.0)


@pytest.mark.slow
async def test_a_container_of_a_killed_actor_is_removed_by_the_next_one(place, end, desktop_image, docker_engine):
    from functools import partial

    from dartsim.real.containers.engine import connect
    from dartsim.real.ray_cluster.desktops import DesktopHost, RayProvider
    from dartsim.run.backends import desktop_backend

    more = ['ray.address="local"', f'desktop.image="{desktop_image}"', "rollout.num_envs=1", "tasks.count=1"]
    prepared = prepare(load("desktop", overrides=more))
    task = prepared.tasks[0]

    def owned_by(pid):
        """Return the containers whose owner, as their labels say, is a process."""
        client = connect(docker_engine)
        try:
            prepared = client.containers.list(all=True, ignore_removed=True)
            return {one.id for one in prepared if any(f":{pid}:" in label for label in one.labels.values())}
        finally:
            client.close()

    open_here = desktop_backend(prepared.config).open_here
    part = place("desktops-0", partial(DesktopHost, partial(open_here, prepared.config, prepared.tasks)))
    async with RayProvider([part]) as provider:
        desktop = await provider.start(0)
        shown = await desktop.reset(task, seed=1)
        assert shown.screenshot.shape[2] == 3
        before = await end(part)
        assert owned_by(before.pid)  # nobody was left to remove its desktop and its sandboxes
        async with asyncio.timeout(240.0):
            with pytest.raises(EnvFault):
                await desktop.step("WAIT")
            await desktop.close()
            again = await started(provider)
            await again.reset(task, seed=2)
            assert 0.0 <= await again.evaluate() <= 1.0
        assert owned_by(before.pid) == set()
        after = await part.placed()
        assert owned_by(after.pid)
        await again.close()
    assert owned_by(after.pid) == set()
