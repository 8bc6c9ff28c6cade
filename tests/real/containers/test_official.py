"""The official OSWorld desktop is a configuration: the call that the engine gets, argument by argument."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dartsim.config.schema import DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.containers import ContainerLimits, DockerHost, official_spec
from dartsim.real.containers.spec import ContainerSpec


@pytest.fixture
def disk(tmp_path) -> Path:
    path = tmp_path / "Ubuntu.qcow2"
    path.write_bytes(b"QFI\xfb")
    return path


def call(engine, spec: ContainerSpec) -> dict[str, Any]:
    seen: list[dict[str, Any]] = []
    engine.hooks["create"] = seen.append

    async def main():
        async with DockerHost(
            DockerHostConfig(url="unix:///fake"),
            run="demo",
            connect=engine.connect,
            check_reachable=engine.check_reachable,
        ) as host:
            container = await host.start(spec, slot=4)
            assert set(container.ports) == {"vnc", "server", "chromium", "vlc"}
            assert len(set(container.ports.values())) == 4

    asyncio.run(main())
    (arguments,) = seen
    labels = arguments.pop("labels")
    assert (labels["dartsim.run"], labels["dartsim.slot"]) == ("demo", "4")
    assert set(labels) == {"dartsim.owner", "dartsim.run", "dartsim.slot"}
    assert arguments.pop("name").startswith("dartsim-")
    return arguments


def test_the_engine_gets_exactly_osworlds_call(engine, disk):
    assert call(engine, official_spec(disk, kvm=True)) == {
        "image": "happysixd/osworld-docker",
        "environment": {"DISK_SIZE": "32G", "RAM_SIZE": "4G", "CPU_CORES": "4"},
        "cap_add": ["NET_ADMIN"],
        "devices": ["/dev/kvm"],
        "volumes": {str(disk): {"bind": "/System.qcow2", "mode": "ro"}},
        "ports": {
            "8006/tcp": ("127.0.0.1", None),
            "5000/tcp": ("127.0.0.1", None),
            "9222/tcp": ("127.0.0.1", None),
            "8080/tcp": ("127.0.0.1", None),
        },
    }


def test_without_kvm_the_machine_is_told_and_gets_no_device(engine, disk):
    arguments = call(engine, official_spec(disk, kvm=False, limits=ContainerLimits(memory_mib=9216)))
    assert "devices" not in arguments
    assert arguments["environment"] == {"DISK_SIZE": "32G", "RAM_SIZE": "4G", "CPU_CORES": "4", "KVM": "N"}
    assert arguments["mem_limit"] == "9216m"


def test_a_missing_disk_is_found_before_the_engine_makes_a_folder_of_it(tmp_path):
    with pytest.raises(ConfigError, match=r"Ubuntu\.qcow2"):
        official_spec(tmp_path / "absent.qcow2", kvm=False)
    with pytest.raises(ConfigError, match=r"Ubuntu\.qcow2"):
        official_spec(tmp_path, kvm=False)


def test_a_disk_of_another_machine_is_taken_as_it_is():
    assert official_spec("/data/Ubuntu.qcow2", kvm=True, local=False).volumes == {
        "/data/Ubuntu.qcow2": "/System.qcow2:ro"
    }
