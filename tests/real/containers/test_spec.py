"""What an engine is asked for."""

import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.containers.spec import ContainerLimits, ContainerSpec, create_arguments


def arguments(spec: ContainerSpec, bind_address: str = "127.0.0.1"):
    return create_arguments(spec, name="n", labels={"dartsim.slot": "1"}, bind_address=bind_address)


def test_everything_that_can_be_asked_for():
    spec = ContainerSpec(
        image="a",
        command=("run", "it"),
        environment={"A": "1"},
        ports={"server": 5000, "vnc": 8006},
        volumes={"/usr": "/usr:ro", "/data": "/d"},
        devices=("/dev/kvm",),
        cap_add=("NET_ADMIN",),
        cap_drop=("ALL",),
        security_opt=("no-new-privileges",),
        user="1000:1000",
        init=True,
        read_only=True,
        tmpfs={"/tmp": "size=64m"},
        network="desktops",
        limits=ContainerLimits(memory_mib=512, cpus=1.5, pids=200),
    )
    assert arguments(spec, "10.0.0.5") == {
        "image": "a",
        "name": "n",
        "command": ["run", "it"],
        "labels": {"dartsim.slot": "1"},
        "environment": {"A": "1"},
        "ports": {"5000/tcp": ("10.0.0.5", None), "8006/tcp": ("10.0.0.5", None)},
        "volumes": {"/usr": {"bind": "/usr", "mode": "ro"}, "/data": {"bind": "/d", "mode": "rw"}},
        "devices": ["/dev/kvm"],
        "cap_add": ["NET_ADMIN"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "user": "1000:1000",
        "init": True,
        "read_only": True,
        "tmpfs": {"/tmp": "size=64m"},
        "network": "desktops",
        "mem_limit": "512m",
        "memswap_limit": "512m",
        "nano_cpus": 1_500_000_000,
        "pids_limit": 200,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"ports": {"server": 0}},
        {"ports": {"server": 5000}, "network": "none"},
        {"volumes": {"disk.qcow2": "/System.qcow2:ro"}},
        {"volumes": {"/disk.qcow2": "System.qcow2"}},
    ],
)
def test_specs_that_cannot_work_are_refused(changes):
    with pytest.raises(ConfigError):
        ContainerSpec(image="a", **changes)


@pytest.mark.parametrize("name", ["memory_mib", "cpus", "pids"])
def test_limits_are_positive(name):
    with pytest.raises(ConfigError, match=name):
        ContainerLimits(**{name: 0})
