"""Nothing listens beyond loopback unless it is configured, and what does wants a token."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import replace

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.core.errors import ConfigError

BEYOND = ["0.0.0.0", "10.0.0.7", "::", "desktops.example.org"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_known(address):
    from dartsim.real.machine import is_loopback

    assert is_loopback(address)


@pytest.mark.parametrize("address", [*BEYOND, "", "127.0.0.1.example.org", "0177.0.0.1"])
def test_what_is_not_loopback_is_known(address):
    from dartsim.real.machine import is_loopback

    assert not is_loopback(address)


def test_every_default_address_of_the_configuration_is_loopback():
    from dartsim.config.schema import DockerHostConfig, VllmConfig
    from dartsim.real.engines.options import EngineOptions

    assert DockerHostConfig().bind == "127.0.0.1"
    assert EngineOptions(vllm=VllmConfig(python="py"), model="m").host == "127.0.0.1"
    command = EngineOptions(vllm=VllmConfig(python="py"), model="m").command(8000)
    assert command[command.index("--host") + 1] == "127.0.0.1"


@pytest.mark.parametrize("host", BEYOND)
def test_an_engine_beyond_loopback_is_refused_because_its_control_routes_take_no_token(host):
    from dartsim.config.schema import VllmConfig
    from dartsim.real.engines.options import EngineOptions

    with pytest.raises(ConfigError, match="take no token"):
        EngineOptions(vllm=VllmConfig(python="py"), model="m", host=host)


def osworld(host):
    tables = {
        "backend": {"desktops": "osworld", "workers": "local", "learner": "local"},
        "policy": {"kind": "vlm"},
        "tasks": {"source": "osworld", "folder": "tasks"},
        "desktop": {"disk": "/d/Ubuntu.qcow2", "hosts": {"far": host}},
    }
    return from_tree(merge(preset("desktop"), tables))


@pytest.mark.parametrize("bind", BEYOND)
def test_desktops_without_a_token_beyond_loopback_need_a_word(bind):
    with pytest.raises(ConfigError, match="whose server requires no"):
        osworld({"bind": bind})
    assert osworld({"bind": bind, "without_token": True}).desktop.hosts["far"].bind == bind
    assert osworld({"bind": "127.0.0.1"}).desktop.hosts["far"].bind == "127.0.0.1"


def test_our_desktops_get_a_new_token_each_run_that_is_shown_nowhere():
    pytest.importorskip("httpx", reason="needs the extra `real`")
    from dartsim.real.containers.spec import TOKEN_VARIABLE, ContainerSpec, with_token
    from dartsim.real.osworld.transport import OWN_SERVER

    spec = ContainerSpec(image="ours", environment={"WIDTH": "100"})
    first, token = with_token(spec)
    _, other = with_token(spec)
    assert token != other
    assert len(token) >= 40
    assert first.environment == {"WIDTH": "100", TOKEN_VARIABLE: token}
    assert token not in repr(replace(OWN_SERVER, token=token))


@pytest.fixture(scope="module")
def server_and_bodies():
    """A desktop's HTTP server with one route, on a port of loopback."""
    from flask import request

    from dartsim.real.desktop.server.app import make_app, serve

    asked = []

    def route():
        asked.append(request.get_data())
        return "done"

    server = serve(make_app({("POST", "/execute"): route}, siblings=True, token="s3cret-token"), "127.0.0.1", 0)
    threading.Thread(target=server.run, daemon=True).start()
    return server.effective_port, asked


@pytest.fixture
def desktop_server(server_and_bodies):
    """The server's port, and the bodies of this test's requests."""
    server_and_bodies[1].clear()
    return server_and_bodies


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "bearer s3cret-token", "s3cret-token", "Bearer s3cret-token2"],
)
def test_a_desktop_with_a_token_does_nothing_without_it(desktop_server, header):
    port, asked = desktop_server
    assert ask(port, header) == 401
    assert asked == []


def test_a_desktop_with_a_token_does_what_it_is_told_with_it(desktop_server):
    port, asked = desktop_server
    assert ask(port, "Bearer s3cret-token") == 200
    assert len(asked) == 1


def ask(port, header):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        headers = {} if header is None else {"Authorization": header}
        connection.request("POST", "/execute", json.dumps({"command": ["id"]}), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_client_sends_the_token_and_the_desks_text_hides_it(desktop_server):
    pytest.importorskip("httpx", reason="needs the extra `real`")
    import asyncio

    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import DesktopAddress
    from dartsim.real.osworld.transport import OWN_SERVER

    port, asked = desktop_server
    url = f"http://127.0.0.1:{port}"

    async def go(token):
        async with VmClient(url, server=replace(OWN_SERVER, token=token)) as client:
            return await client._wire.act("POST", "/execute", seconds=10.0, accept=lambda reply: reply.status_code)

    assert asyncio.run(go("s3cret-token")) == 200
    assert asyncio.run(go("")) == 401
    assert len(asked) == 1
    assert "s3cret" not in repr(DesktopAddress(server_url=url, token="s3cret-token"))


def test_an_engine_on_a_nodes_address_was_asked_for(monkeypatch, tmp_path):
    pytest.importorskip("aiohttp")  # not ray: whoever imports it first decides where a Ray of this process listens
    from dartsim.config.schema import VllmConfig
    from dartsim.real.engines.options import EngineOptions
    from dartsim.real.ray_cluster import engines

    monkeypatch.setattr(engines, "node_address", lambda: "10.0.0.5")
    options = EngineOptions(vllm=VllmConfig(python="python"), model="/m")
    node = engines.EngineHost(options, str(tmp_path), "e", "node")._engine.options
    assert (node.host, node.exposed) == ("10.0.0.5", True)
    loopback = engines.EngineHost(options, str(tmp_path), "e", "loopback")._engine.options
    assert (loopback.host, loopback.exposed) == ("127.0.0.1", False)
