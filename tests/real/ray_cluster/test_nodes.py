"""A node of a cluster that ends: what sat on it comes up on another one. All nodes are raylets of this machine."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import uuid
from contextlib import asynccontextmanager

import pytest

from dartsim.core.errors import EnvBroken

pytestmark = pytest.mark.soak

LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def test_desktops_of_a_node_that_ends_come_up_on_another():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra `ray`")
    # In a process of its own: it has another Ray than the tests beside it.
    program = f"import runpy; runpy.run_path({__file__!r})['lose_a_node']()"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}  # of this cluster alone
    environment = {**os.environ, **LOOPBACK, **token}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["cause"] == "host_lost"
    assert found["nodes"][0] != found["nodes"][1]
    assert found["moved"] == found["nodes"][1]


def mock_desktops():
    @asynccontextmanager
    async def opened():
        from dartsim.envs.direct import DirectProvider
        from dartsim.envs.mock.env import MockDesktop

        yield DirectProvider(lambda: MockDesktop(width=112, height=112, grammar="compact", grammar_options={}))

    return opened


def lose_a_node():
    """Start two nodes with desktops beside the head, end one, and print what became of its host."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=2, resources={"desktops": 2}) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, namespace="dartsim")
    try:
        print(json.dumps(asyncio.run(_lose(cluster, nodes))))
    finally:
        ray.shutdown()
        cluster.shutdown()


async def _until_broken(desktop):
    """Use a desktop until it is lost: an actor outlives its node's raylet by a moment, and still answers."""
    while True:
        try:
            await desktop.step("WAIT")
        except EnvBroken as broken:
            return broken.cause
        await asyncio.sleep(0.2)


async def _lose(cluster, nodes):
    from dartsim.envs.mock.suites import mock_tasks
    from dartsim.real.ray_cluster.desktops import DesktopHost, RayProvider
    from dartsim.real.ray_cluster.parts import Part

    task = mock_tasks("click_button", 1, 0, 1, held_out=False)[0]
    opener = mock_desktops()
    want = {"resources": {"desktops": 1.0}}
    hosts = [Part(f"desktops-{n}", lambda: DesktopHost(opener), want) for n in range(2)]
    async with RayProvider(hosts) as provider:
        where = [(await host.placed()).node for host in hosts]
        desktops = [await provider.start(slot) for slot in range(2)]
        for desktop in desktops:
            await desktop.reset(task, seed=1)
        ended = next(node for node in nodes if node.node_id == where[0])
        await asyncio.to_thread(cluster.remove_node, ended, False)
        async with asyncio.timeout(120.0):
            cause = await _until_broken(desktops[0])
            assert not (await desktops[1].step("WAIT")).over
            facts = await hosts[0].placed()
            again = [await provider.start(slot) for slot in range(2, 5)]
            for desktop in again:
                await desktop.reset(task, seed=2)
    return {"cause": cause, "nodes": where, "moved": facts.node}
