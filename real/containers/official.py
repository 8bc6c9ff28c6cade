"""OSWorld's official desktop: a virtual machine in the image ``happysixd/osworld-docker``.

The image runs QEMU on a read-only disk, so that every new container is a fresh machine.
Source: OSWorld's docker provider (xlang-ai/OSWorld, ``desktop_env/providers/docker/provider.py``) for image,
environment, capability, device, volume and ports; names, labels, loopback and free ports are ours.

To use it: fetch the image (``docker pull happysixd/osworld-docker``, 7.3 GB) and the disk ``Ubuntu.qcow2`` (24.5 GB, as
OSWorld's README says) on the engine's machine, load ``kvm_intel`` or ``kvm_amd``, and give the disk's path. A machine
takes about 4.2 GiB of memory and boots in about 30 s with KVM.

The existence of ``/dev/kvm`` proves little: we may have no access, or its module (a paravirtual one) may not boot a
stock guest. OSWorld's provider checks only that the file exists; ``kvm_state`` checks more.
"""

from __future__ import annotations

import fcntl
import logging
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.containers.spec import ContainerLimits, ContainerSpec

logger = logging.getLogger(__name__)

VENDOR_MODULES = ("kvm_intel", "kvm_amd")
"""Modules that run an unchanged x86 guest on the processor's own virtualization."""

SCREEN = (1920, 1080)
"""Screen size of the official disk, pixels."""

EMULATED = "a Debian with systemd and a small desktop boots in one to three minutes, Ubuntu's GNOME in many more"
"""How long machines take without KVM: measured on two cores, idle and with ten other busy processes."""

_GET_API_VERSION = 0xAE00
"""ioctl KVM_GET_API_VERSION (Linux, Documentation/virt/kvm/api.rst)."""


class Kvm(StrEnum):
    """The setting ``desktop.kvm``."""

    AUTO = "auto"
    """On if a vendor's module is loaded and the device opens."""
    ON = "on"
    """On without a check; for an engine on another machine, which cannot be checked from here."""
    OFF = "off"
    """Off: the guest is emulated, 5 to 20 times slower."""


@dataclass(frozen=True, slots=True)
class KvmState:
    """Whether to use KVM, and why."""

    use: bool
    why: str


def kvm_state(
    setting: Kvm, *, modules: Path = Path("/sys/module"), device: Path = Path("/dev/kvm"), local: bool = True
) -> KvmState:
    """Decide whether to use KVM.

    Args:
        setting: The setting ``desktop.kvm``.
        modules: Folder in which the kernel lists its modules, including built-in ones, one folder each.
        device: The device.
        local: Whether the engine runs on this machine; if not, ``auto`` is off.
    """
    if setting is not Kvm.AUTO:
        return KvmState(setting is Kvm.ON, f"set to {setting}")
    if not local:
        return KvmState(False, "the engine is on another machine, where KVM cannot be looked for: set kvm to on or off")
    vendor = next((name for name in VENDOR_MODULES if (modules / name).is_dir()), None)
    problem = _open_problem(device)
    if vendor is None:
        others = sorted(path.name for path in modules.glob("kvm*")) if modules.is_dir() else []
        seen = f"of the modules only {', '.join(others)}" if others else "no module of it"
        opens = "opens" if problem is None else problem
        return KvmState(False, f"neither {' nor '.join(VENDOR_MODULES)} is loaded ({seen}; {device} {opens})")
    if problem is not None:
        return KvmState(False, f"{vendor} is loaded, but {device} {problem}")
    return KvmState(True, f"{vendor} is loaded and {device} opens")


def on_this_machine(desktop: DesktopConfig) -> bool:
    """Return whether all engines of a configuration run on this machine."""
    return all(host.local for host in desktop.hosts.values() or [DockerHostConfig()])


def configured_kvm(desktop: DesktopConfig) -> bool:
    """Return whether the virtual machines of a configuration use KVM."""
    local = on_this_machine(desktop)
    if not local and Kvm(desktop.kvm) is Kvm.AUTO:
        logger.warning(
            'desktop.kvm = "auto" cannot look at another machine, so KVM is off and desktops are 5 to 20 times '
            'slower: set desktop.kvm = "on" if all engines have it, else "off"'
        )
    return kvm_state(Kvm(desktop.kvm), local=local).use


QCOW2 = b"QFI\xfb"


def check_disk(disk: Path) -> None:
    """Check that a file is a disk that a virtual machine can boot from.

    Raises:
        ConfigError: If it is missing, no qcow2 file, or a layer over another file.
    """
    try:
        with disk.open("rb") as file:
            header = file.read(16)
    except OSError as error:
        raise ConfigError(
            f"desktop.disk = {disk} cannot be read: {error.strerror}",
            "OSWorld's README says how to fetch Ubuntu.qcow2",
        ) from error
    if header[:4] != QCOW2 or len(header) < 16:
        raise ConfigError(
            f"desktop.disk = {disk} is no qcow2 file",
            "unpack an archive, or type `qemu-img convert -O qcow2 OLD NEW`",
        )
    if any(header[8:16]):  # the offset of the name of a file below it
        raise ConfigError(
            f"desktop.disk = {disk} is a layer over another file, which the container would not have",
            "type `qemu-img convert -O qcow2 OLD NEW` to make one file of both",
        )


def _open_problem(device: Path) -> str | None:
    """Return why the device cannot be used; None if it can."""
    try:
        handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"does not open ({error.strerror}): join the group `kvm`"
    try:
        fcntl.ioctl(handle, _GET_API_VERSION)
    except OSError as error:
        return f"opens, but is no KVM device ({error.strerror})"
    finally:
        os.close(handle)
    return None


IMAGE = "happysixd/osworld-docker"
DISK_TARGET = "/System.qcow2:ro"
MACHINE = {"DISK_SIZE": "32G", "RAM_SIZE": "4G", "CPU_CORES": "4"}
"""OSWorld's own."""
PORTS = {"vnc": 8006, "server": 5000, "chromium": 9222, "vlc": 8080}
"""noVNC, the server in the machine, Chromium's debugging port, VLC's control."""


def official_spec(
    disk: str | Path,
    *,
    kvm: bool,
    image: str = IMAGE,
    limits: ContainerLimits | None = None,
    local: bool = True,
) -> ContainerSpec:
    """Return the container of one official desktop.

    Args:
        disk: The disk ``Ubuntu.qcow2``, a path on the engine's machine.
        kvm: Whether to give the machine /dev/kvm; ``kvm_state`` decides.
        image: The image, if renamed or pinned to a digest.
        limits: Limits of the container; OSWorld sets none. Give at least 1 GiB more than the machine has.
        local: Whether the engine is on this machine, so that the disk can be checked.

    Raises:
        ConfigError: If the disk is missing. (The engine would create an empty folder in its place.)
    """
    if local and not Path(disk).is_file():
        raise ConfigError(f"OSWorld's disk is not at {disk}: fetch Ubuntu.qcow2 as its README says and give its path")
    path = str(Path(disk).resolve()) if local else str(disk)
    return ContainerSpec(
        image=image,
        environment=MACHINE if kvm else {**MACHINE, "KVM": "N"},
        ports=PORTS,
        volumes={path: DISK_TARGET},
        devices=("/dev/kvm",) if kvm else (),
        cap_add=("NET_ADMIN",),
        limits=limits or ContainerLimits(),
    )
