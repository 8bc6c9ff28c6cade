"""OSWorld's official desktop: a virtual machine in the image ``happysixd/osworld-docker``, as one more spec.

The image runs QEMU on a read-only disk, so that a new container is the machine as it was at first.
Source: OSWorld's docker provider (xlang-ai/OSWorld, ``desktop_env/providers/docker/provider.py``): image, environment,
capability, device, volume and ports are its; names, labels, loopback and free ports are ours.

To use it: fetch the image (``docker pull happysixd/osworld-docker``, 7.3 GB) and the disk ``Ubuntu.qcow2`` (24.5 GB, as
OSWorld's README says) on the engine's machine, load ``kvm_intel`` or ``kvm_amd``, and give the disk's path. A machine
takes about 4.2 GiB of memory and boots in about 30 s with KVM.
"""

from __future__ import annotations

from pathlib import Path

from dartsim.core.errors import ConfigError
from dartsim.real.containers.spec import ContainerSpec, Limits

IMAGE = "happysixd/osworld-docker"
DISK_TARGET = "/System.qcow2:ro"
PORTS = {"vnc": 8006, "server": 5000, "chromium": 9222, "vlc": 8080}
"""noVNC, the server in the machine, Chromium's debugging port, VLC's control."""


def official_spec(
    disk: str | Path,
    *,
    kvm: bool,
    image: str = IMAGE,
    cores: int = 4,
    ram_gib: int = 4,
    disk_gib: int = 32,
    limits: Limits | None = None,
    local: bool = True,
) -> ContainerSpec:
    """Return what runs one official desktop.

    Args:
        disk: The disk ``Ubuntu.qcow2``, a path on the engine's machine.
        kvm: Whether to hand /dev/kvm to the machine; ``dartsim.real.containers.kvm.kvm_state`` decides.
        image: The image's name, if it is kept under another, or pinned to a digest.
        cores: Virtual cores.
        ram_gib: Memory of the machine, GiB.
        disk_gib: Size the machine sees its disk grown to, GiB.
        limits: Limits of the container; OSWorld sets none. Give at least 1 GiB more than ``ram_gib``.
        local: Whether the engine is on this machine, so that the disk can be looked for.

    Raises:
        ConfigError: If the disk is not there. (The engine would put an empty folder in its place.)
    """
    if local and not Path(disk).is_file():
        raise ConfigError(f"OSWorld's disk is not at {disk}: fetch Ubuntu.qcow2 as its README says and give its path")
    path = str(Path(disk).resolve()) if local else str(disk)
    environment = {"DISK_SIZE": f"{disk_gib}G", "RAM_SIZE": f"{ram_gib}G", "CPU_CORES": str(cores)}
    return ContainerSpec(
        image=image,
        environment=environment if kvm else {**environment, "KVM": "N"},
        ports=PORTS,
        volumes={path: DISK_TARGET},
        devices=("/dev/kvm",) if kvm else (),
        cap_add=("NET_ADMIN",),
        limits=limits or Limits(),
    )
