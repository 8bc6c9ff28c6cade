"""Where an engine is, and how its clients reach what runs there."""

import pytest
from pydantic import ValidationError

from dartsim.config.schema import DockerHostConfig
from dartsim.core.errors import ConfigError, EnvBroken, EnvStartFailed
from dartsim.real.containers import errors
from dartsim.real.containers.engine import connect
from dartsim.real.containers.errors import call_fault, start_fault


@pytest.fixture(autouse=True)
def _no_docker_host(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "127.0.0.1"),
        ({"bind": "0.0.0.0"}, "127.0.0.1"),
        ({"bind": "10.0.0.5"}, "10.0.0.5"),
        ({"url": "tcp://127.0.0.1:2375"}, "127.0.0.1"),
        ({"url": "tcp://far:2376", "bind": "0.0.0.0"}, "far"),
        ({"url": "ssh://me@far:22", "bind": "0.0.0.0"}, "far"),
        ({"url": "ssh://me@far", "address": "127.0.0.1"}, "127.0.0.1"),
    ],
)
def test_the_address_that_clients_use(settings, address):
    assert DockerHostConfig(**settings).client_address == address


def test_the_loopback_of_another_machine_is_refused():
    with pytest.raises(ConfigError, match="set bind to"):
        _ = DockerHostConfig(url="ssh://far").client_address


def test_docker_host_is_respected(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://far")
    assert (DockerHostConfig().machine, DockerHostConfig().local) == ("far", False)
    assert DockerHostConfig(url="unix:///run/docker.sock").local


def test_an_address_without_a_scheme_is_refused():
    with pytest.raises(ValidationError):
        DockerHostConfig(url="/run/docker.sock")


def test_no_engine_is_said_with_what_to_do(tmp_path):
    pytest.importorskip("docker")
    with pytest.raises(errors.EngineMissing, match="DOCKER_HOST") as caught:
        connect(DockerHostConfig(url=f"unix://{tmp_path}/absent.sock"))
    assert caught.value.cause == "engine_missing"
    with pytest.raises(errors.EngineMissing):
        connect(DockerHostConfig(url="tcp://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("status", "text", "cause"),
    [
        (500, "driver failed ...: listen tcp4 127.0.0.1:5000: bind: address already in use", "port_clash"),
        (500, "Bind for 0.0.0.0:5000 failed: port is already allocated", "port_clash"),
        (500, 'error gathering device information while adding custom device "/dev/kvm"', "device_missing"),
        (500, "mkdir /var/lib/docker/overlay2/x: no space left on device", "out_of_resources"),
        (500, "adding interface veth1 to bridge docker0 failed: exchange full", "out_of_resources"),
        (400, "unknown capability", "engine_refused"),
        (409, "Conflict. The container name is already in use", "engine_refused"),
    ],
)
def test_a_refusal_has_its_cause(refusal, status, text, cause):
    fault = start_fault(refusal(status, text), engine="e", image="i")
    assert isinstance(fault, EnvStartFailed)
    assert fault.cause == cause


def test_other_failures_have_their_causes(refusal):
    import docker.errors
    import requests

    missing = refusal(404, "No such image: i", "ImageNotFound")
    assert isinstance(start_fault(missing, engine="e", image="i"), errors.ImageMissing)
    for error in (requests.ConnectionError("refused"), docker.errors.DockerException("x"), ConnectionResetError()):
        assert isinstance(start_fault(error, engine="e", image="i"), errors.EngineMissing)
        assert isinstance(call_fault(error, engine="e", container="c"), errors.DockerLost)
    assert isinstance(start_fault(requests.ReadTimeout(), engine="e", image="i"), errors.EngineTimedOut)
    assert isinstance(call_fault(requests.ReadTimeout(), engine="e", container="c"), errors.DockerHung)
    gone = refusal(404, "No such container", "NotFound")
    assert isinstance(call_fault(gone, engine="e", container="c"), errors.ContainerGone)
    refused = call_fault(refusal(409, "is paused"), engine="e", container="c")
    assert isinstance(refused, EnvBroken)
    assert refused.cause == "call_refused"


def test_a_bug_is_no_fault(refusal):
    assert start_fault(TypeError("bug"), engine="e", image="i") is None
    assert call_fault(TypeError("bug"), engine="e", container="c") is None
