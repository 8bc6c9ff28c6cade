"""Nodes that end, and one that is added, on which what they had comes up. All are raylets of this machine."""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from dartsim.core.errors import EnvBroken, WorkerFault

pytestmark = pytest.mark.slow

LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 2,
}
"""Ray's settings by which an ended node is known after about a second, not half a minute."""
SERVER = """
import http.server, sys

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

host, port = (sys.argv[sys.argv.index(flag) + 1] for flag in ("--host", "--port"))
http.server.HTTPServer((host, int(port)), Healthy).serve_forever()
"""


def test_desktops_and_an_engine_whose_nodes_end_come_up_on_one_that_is_added(tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra `ray`")
    pytest.importorskip("httpx", reason="needs the extra `real`")
    # In a process of its own: it has another Ray than the tests beside it.
    program = f"import runpy; runpy.run_path({__file__!r})['lose_nodes']({str(tmp_path)!r})"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}  # of this cluster alone
    environment = {**os.environ, **LOOPBACK, **token}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found").read_text())
    assert len(set(found["at_first"])) == 3  # a node for each part
    assert found["cause"] == "host_lost"
    assert found["status"] == -9
    assert found["moved"] == [found["added"]] * 2
    assert found["url_changed"]


def mock_desktops():
    @asynccontextmanager
    async def opened():
        from dartsim.envs.direct import DirectProvider
        from dartsim.envs.mock.env import MockDesktop

        yield DirectProvider(lambda: MockDesktop(width=112, height=112, grammar="compact", grammar_options={}))

    return opened


def lose_nodes(folder):
    """Place each part on a node of its own, end two, add one, and write where the parts were and are."""
    # Sockets need a short path; and Ray writes the address of its newest cluster there, which is not everybody's.
    temporary = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ds", dir="/tmp")
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "resources": {"desktops": 1}, "_system_config": SOON}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=0, resources={part: 1}) for part in ("desktops", "engine")]
    ray.init(address=cluster.address, log_to_driver=False, namespace="dartsim")
    try:
        found = asyncio.run(_lose(cluster, nodes, folder))
        Path(folder, "found").write_text(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(temporary, ignore_errors=True)


def _engine(folder):
    """Return an engine in an actor, with a server that is healthy and no more."""
    from dartsim.config.sections.vllm import VllmConfig
    from dartsim.real.engines.options import EngineOptions
    from dartsim.real.ray_cluster.engines import EngineHost, RayEngine
    from dartsim.real.ray_cluster.parts import Part

    vllm = VllmConfig(python=sys.executable, start_seconds=60.0)
    options = EngineOptions(vllm=vllm, model=folder, entry=("-c", SERVER))
    host = partial(EngineHost, options, f"{folder}/logs", "engine-0", "loopback")
    return RayEngine(Part("engine-0", host, {"num_cpus": 0, "resources": {"engine": 1}}), start_seconds=60.0)


async def _until_broken(desktop):
    """Use a desktop until it is lost: an actor outlives its node's raylet by a moment, and still answers."""
    while True:
        try:
            await desktop.step("WAIT")
        except EnvBroken as broken:
            return broken.cause
        await asyncio.sleep(0.2)


async def _started(engine):
    while not engine.running:
        try:
            await engine.start()
        except WorkerFault:
            await asyncio.sleep(0.2)
    return engine.url


async def _lose(cluster, nodes, folder):
    from dartsim.envs.mock.suites import mock_tasks
    from dartsim.real.ray_cluster.desktops import DesktopHost, RayProvider
    from dartsim.real.ray_cluster.parts import Part

    task = mock_tasks("click_button", 1, 0, 1, held_out=False)[0]
    opener, engine = mock_desktops(), _engine(folder)
    want = {"num_cpus": 0, "resources": {"desktops": 1}}
    hosts = [Part(f"desktops-{n}", lambda: DesktopHost(opener), want) for n in range(2)]
    async with RayProvider(hosts) as provider, asyncio.timeout(200.0):
        url = await _started(engine)
        where = [(await part.placed()).node for part in (*hosts, engine.part)]
        lost = next(index for index in range(2) if where[index] == nodes[0].node_id)
        desktops = [await provider.start(slot) for slot in range(2)]
        for desktop in desktops:
            await desktop.reset(task, seed=1)
        ended = asyncio.ensure_future(engine.ended())
        for node in nodes:
            await asyncio.to_thread(cluster.remove_node, node, False)
        cause, status = await _until_broken(desktops[lost]), await ended
        waiting = [asyncio.ensure_future(provider.start(lost)), asyncio.ensure_future(_started(engine))]
        assert not (await desktops[1 - lost].step("WAIT")).over  # the host whose node is there serves on
        assert not any(start.done() for start in waiting)  # no node has room for them
        added = cluster.add_node(num_cpus=0, resources={"desktops": 1, "engine": 1})
        again, now = await asyncio.gather(*waiting)
        await again.reset(task, seed=2)
        moved = [(await part.placed()).node for part in (hosts[lost], engine.part)]
        await engine.stop()
    return {
        "at_first": where,
        "cause": cause,
        "status": status,
        "added": added.node_id,
        "moved": moved,
        "url_changed": now != url,
    }
