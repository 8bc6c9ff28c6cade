"""``ContainerSpec``: what a container runs; for our own image and the official one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dartsim.config.schema import DesktopConfig
from dartsim.core.errors import ConfigError

MAX_PIDS = 4096
"""Processes and threads of a desktop; QEMU of OSWorld's image has several hundred."""
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """Limits of one container; None sets no limit.

    Attributes:
        memory_mib: Memory, MiB; there is no swap on top of it.
        cpus: Cores; may be a fraction.
        pids: Processes and threads.
    """

    memory_mib: int | None = None
    cpus: float | None = None
    pids: int | None = None

    def __post_init__(self) -> None:
        for name in ("memory_mib", "cpus", "pids"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"container limit {name} must be positive or None, got {value}")


def container_limits(desktop: DesktopConfig) -> ContainerLimits:
    """Return the limits of a configured desktop's container."""
    return ContainerLimits(memory_mib=desktop.memory_mib, cpus=desktop.cpus, pids=MAX_PIDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What an engine runs.

    Attributes:
        image: Name of the image, which the engine must have.
        command: What to run instead of the image's own command.
        environment: Environment variables.
        ports: Port inside the container by name (``server``, ``vnc``, ``chromium``, ``vlc``), all TCP.
        volumes: ``"/target"``, ``"/target:ro"`` or ``"/target:rw"`` by absolute path on the engine's machine.
        shared: Path inside by short name of a volume that the run's containers on one engine share.
        devices: Devices, as ``/dev/kvm`` or ``/dev/a:/dev/b:rwm``.
        cap_add: Capabilities to add.
        cap_drop: Capabilities to drop; ``("ALL",)`` drops every one.
        security_opt: Security options, as ``no-new-privileges``.
        user: User inside the container; None takes the image's.
        init: Whether the engine runs its own init process before the command.
        read_only: Whether the root file system is read-only.
        tmpfs: Mount options by path of a memory file system.
        network: Network to join; None is the engine's bridge.
        ipc: IPC namespace; ``none`` has no ``/dev/shm``, None is the engine's default.
        limits: What it may use.
        state_command: What saves, restores or deletes the state of the machine in it, called inside with one of these
            words and a key; none if there is no such thing.
    """

    image: str
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    user: str | None = None
    init: bool = False
    read_only: bool = False
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    ipc: str | None = None
    limits: ContainerLimits = field(default_factory=ContainerLimits)
    state_command: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, port in self.ports.items():
            if not 0 < port < 65536:
                raise ConfigError(f"port {name!r} of {self.image} must be 1 to 65535, got {port}")
        if self.network == "none" and self.ports:
            raise ConfigError(f"{self.image} has no network and wants the ports {dict(self.ports)}: drop one of them")
        for source, target in self.volumes.items():
            # The engine would take a relative path for the name of a new, empty volume.
            if not source.startswith("/") or not target.startswith("/"):
                raise ConfigError(f"a volume of {self.image} needs absolute paths, got {source!r}: {target!r}")


def create_arguments(
    spec: ContainerSpec, *, name: str, labels: Mapping[str, str], bind_address: str, volumes: Mapping[str, str] = _NONE
) -> dict[str, Any]:
    """Return the arguments of the ``docker`` package's ``containers.create`` for a spec.

    Options that the spec does not set are left out, so that the engine's defaults hold. Each port is published on a
    free port of ``bind_address``; ``volumes`` has the engine's name of each shared volume.
    """
    arguments: dict[str, Any] = {"image": spec.image, "name": name, "labels": dict(labels)}
    options: dict[str, Any] = {
        "environment": dict(spec.environment),
        "volumes": {source: _bind(target) for source, target in spec.volumes.items()}
        | {volumes[short]: _bind(path) for short, path in spec.shared.items() if short in volumes},
        "devices": list(spec.devices),
        "cap_add": list(spec.cap_add),
        "cap_drop": list(spec.cap_drop),
        "security_opt": list(spec.security_opt),
        "user": spec.user,
        "init": spec.init,
        "read_only": spec.read_only,
        "tmpfs": dict(spec.tmpfs),
        "network": spec.network,
        "ipc_mode": spec.ipc,
        **_limits(spec.limits),
    }
    if spec.ports:
        options["ports"] = {f"{port}/tcp": (bind_address, None) for port in spec.ports.values()}
    arguments.update({key: value for key, value in options.items() if value})
    if spec.command is not None:
        arguments["command"] = list(spec.command)
    return arguments


def _bind(target: str) -> dict[str, str]:
    path, _, mode = target.partition(":")
    return {"bind": path, "mode": mode or "rw"}


def _limits(limits: ContainerLimits) -> dict[str, Any]:
    options: dict[str, Any] = {"pids_limit": limits.pids}
    if limits.memory_mib is not None:
        # The same number twice: no swap, so that a desktop over its limit fails instead of crawling.
        options["mem_limit"] = options["memswap_limit"] = f"{limits.memory_mib}m"
    if limits.cpus is not None:
        options["nano_cpus"] = round(limits.cpus * 1e9)
    return options


TOKEN_VARIABLE = "DESKTOP_TOKEN"
"""Environment variable with the token of a desktop that is reachable from elsewhere; kept in memory only."""


def with_token(spec: ContainerSpec) -> tuple[ContainerSpec, str]:
    """Return a spec whose server requires a new token, and the token."""
    token = secrets.token_urlsafe(32)
    return replace(spec, environment={**spec.environment, TOKEN_VARIABLE: token}), token
