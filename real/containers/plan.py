"""The containers of a configuration's real desktops, and their engines; needs no extra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dartsim.config import Config
from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.containers import ContainerSpec, official_spec
from dartsim.real.containers.official import IMAGE, configured_kvm, on_this_machine
from dartsim.real.containers.spec import container_limits

VM_GIB = 4.2
"""Memory of one of OSWorld's virtual machines, GiB (measured by others, see ``official``)."""

UNKNOWN_IMAGE = "IMAGE"
"""Placeholder for an image that cannot be built on this machine, since its name has a hash of the machine's files."""


def docker_hosts(desktop: DesktopConfig) -> dict[str, DockerHostConfig]:
    """Return the configured engines by name; the local one if none is configured."""
    return desktop.hosts or {"local": DockerHostConfig()}


def container_spec(config: Config, *, look: bool = True) -> ContainerSpec:
    """Return the container of a desktop; ``look`` checks its needs on this machine, if the engines are local.

    Raises:
        ConfigError: If the disk is missing, or packages for a skeleton are.
    """
    desktop = config.desktop
    if config.backend.desktops == "osworld":
        assert desktop.disk is not None, "checked by dartsim.config.rules"
        return official_spec(
            desktop.disk,
            kvm=configured_kvm(desktop),
            limits=container_limits(desktop),
            local=look and on_this_machine(desktop),
            image=desktop.image or IMAGE,
        )
    from dartsim.real.desktop import desktop_spec

    if not look and skeleton_problem(config):
        desktop = desktop.replace(image=UNKNOWN_IMAGE)
    return desktop_spec(desktop, look=look)


def skeleton_problem(config: Config) -> tuple[str, str] | None:
    """Return why the desktop image of a configuration cannot be made here and what to do about it, or None."""
    from dartsim.real.desktop.skeleton import machine_problem

    desktop = config.desktop
    if desktop.variant != "skeleton" or desktop.image is not None:
        return None
    return machine_problem()


def desktop_plan(config: Config) -> dict[str, Any]:
    """Return the containers that a run would start, JSON-serializable."""
    dealt = desktops_by_host(config)
    spec = asdict(container_spec(config, look=False))
    hosts = [
        {"url": host.url or "DOCKER_HOST or the local engine", "most": host.max_desktops, "bind": host.bind}
        for host in docker_hosts(config.desktop).values()
    ]
    ports = ", ".join(f"{name} {port}" for name, port in spec["ports"].items())
    each = desktop_gib(config)
    return {
        "what": f"{config.rollout.num_desktops} containers of {spec['image']}, on free ports of the host for: {ports}",
        "container": spec,
        "addresses": [f"{host['url']}: at most {host['most']}, ports on {host['bind']}" for host in hosts],
        "hosts": [
            {
                "name": name,
                "desktops": count,
                "gib_used": round(count * each, 1),
                "gib_limit": round(count * config.desktop.memory_mib / 1024, 1),
                "cores_limit": count * config.desktop.cpus,
            }
            for name, count in dealt.items()
        ],
    }


def desktop_gib(config: Config) -> float:
    """Return the memory of a desktop, GiB."""
    return VM_GIB if config.backend.desktops == "osworld" else config.desktop.memory_mib / 1024


def desktops_by_host(config: Config) -> dict[str, int]:
    """Return the number of desktops of each engine: each goes where the largest share of places is free.

    Raises:
        ConfigError: If there are more desktops than places.
    """
    hosts = docker_hosts(config.desktop)
    places = sum(host.max_desktops for host in hosts.values())
    wanted = config.rollout.num_desktops
    if wanted > places:
        raise ConfigError(
            f"{wanted} desktops are wanted (rollout.num_envs and warm_envs), but the hosts take {places}; raise "
            "desktop.hosts.NAME.max_desktops or lower the first"
        )
    dealt: Counter[str] = Counter(dict.fromkeys(hosts, 0))
    for _ in range(wanted):
        freest = max(hosts, key=lambda name: 1.0 - dealt[name] / hosts[name].max_desktops)
        dealt[freest] += 1
    return dict(dealt)


def refuse_small_hosts(config: Config, memory_gib: Sequence[float]) -> None:
    """Refuse virtual machines that need more memory than their hosts have, given in the order of ``docker_hosts``.

    Raises:
        ConfigError: If they do not fit.
    """
    each = desktop_gib(config)
    for (name, count), memory in zip(desktops_by_host(config).items(), memory_gib, strict=True):
        if count * each > memory:
            raise ConfigError(
                f"{count} virtual machines of {each:.1f} GiB (desktop.memory_mib) do not fit on host {name}, which has "
                f"{memory:g} GiB",
                "lower rollout.num_envs, rollout.warm_envs or desktop.memory_mib, or add a host",
            )
