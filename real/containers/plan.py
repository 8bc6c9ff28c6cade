"""What each real desktop's container of a configuration would run, and on which engines; it needs no extra."""

from __future__ import annotations

import logging

from dartsim.config import Config
from dartsim.config.schema import DesktopConfig, DesktopHostConfig
from dartsim.real.containers import ContainerLimits, ContainerSpec, HostSettings, Kvm, kvm_state, official_spec
from dartsim.real.containers.official import IMAGE

logger = logging.getLogger(__name__)

UNKNOWN_IMAGE = "IMAGE"
"""Stands for a desktop image that cannot be made on this machine: its name has a hash of the machine's own files."""


def host_settings(settings: DesktopConfig) -> list[HostSettings]:
    """Return how the configured engines are reached."""
    configured = list(settings.hosts.values()) or [DesktopHostConfig()]
    return [
        HostSettings(
            url=host.url,
            capacity=host.max_desktops,
            bind_address=host.bind,
            address=host.address,
            starts_at_once=settings.concurrent_starts,
        )
        for host in configured
    ]


def container_spec(config: Config, *, look: bool = True) -> ContainerSpec:
    """Return what a desktop's container runs.

    Args:
        config: The configuration.
        look: Whether what it needs has to be on this machine (OSWorld's disk, the packages of a skeleton), if the
            engines are.

    Raises:
        ConfigError: If the disk is not there, or packages of a skeleton are missing.
    """
    desktop = config.desktop
    limits = ContainerLimits(
        memory_mib=desktop.memory_mib, cpus=desktop.cpus, pids=desktop.pids, shm_mib=desktop.shm_mib
    )
    if config.backend.desktops == "osworld":
        assert desktop.disk is not None, "checked by dartsim.config.rules"
        local = all(host.local for host in host_settings(desktop))
        kvm = kvm_state(Kvm(desktop.kvm), local=local)
        if not local and Kvm(desktop.kvm) is Kvm.AUTO:
            logger.warning(
                'desktop.kvm = "auto" cannot look at another machine, so KVM is off and desktops are 5 to 20 times '
                'slower: set desktop.kvm = "on" if all engines have it, else "off"'
            )
        return official_spec(
            desktop.disk, kvm=kvm.use, limits=limits, local=look and local, image=desktop.image or IMAGE
        )
    from dartsim.real.desktop import desktop_spec

    return desktop_spec(
        desktop.variant,
        width=desktop.width,
        height=desktop.height,
        memory_mib=desktop.memory_mib,
        cpus=desktop.cpus,
        pids=desktop.pids,
        shm_mib=desktop.shm_mib,
        image=desktop.image or (UNKNOWN_IMAGE if not look and skeleton_problem(config) else None),
        office=desktop.office,
        action_pause_seconds=desktop.action_pause_seconds,
    )


def skeleton_problem(config: Config) -> tuple[str, str] | None:
    """Return why the desktop image of a configuration cannot be made here and what to do about it, or None."""
    from dartsim.real.desktop.skeleton import machine_problem

    desktop = config.desktop
    if desktop.variant != "skeleton" or desktop.image is not None:
        return None
    return machine_problem(office=desktop.office)
