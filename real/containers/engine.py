"""One Docker engine: its address, and the addresses of its containers' ports. Blocking."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dartsim.config.sections.desktop import DEFAULT_URL, DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.real.containers.errors import AddressUnknown, EngineMissing, missing

CONNECT_SECONDS, CALL_SECONDS = 5.0, 60.0
"""Time limits for reaching an engine, and of one call."""
CONCURRENT_CALLS = 8
"""Concurrent calls of an engine, in addition to starts."""

Connect = Callable[[DockerHostConfig], Any]
"""Opens a client of the ``docker`` package, or a fake."""


def connect(settings: DockerHostConfig) -> Any:
    """Return a connected client of the ``docker`` package.

    Raises:
        EngineMissing: If no engine answers.
        ConfigError: If the ``docker`` package is missing, or TLS is set up wrongly.
    """
    try:
        import docker
        import requests
    except ImportError as error:
        raise ConfigError("real desktops need the `docker` package", install_command("real")) from error
    environment = dict(os.environ)
    if settings.url is not None:
        environment["DOCKER_HOST"] = settings.url
    try:
        check_reachable(settings)
        return docker.from_env(
            environment=environment,
            timeout=CALL_SECONDS,
            max_pool_size=settings.concurrent_starts + CONCURRENT_CALLS,
            # The user's own ssh, with its configuration and agent.
            use_ssh_client=settings.target.startswith("ssh://"),
        )
    except docker.errors.TLSParameterError as error:
        raise ConfigError(f"TLS for {settings.target}: {error}") from error
    # The package assumes that whatever answers is an engine.
    except (docker.errors.DockerException, requests.RequestException, OSError, TypeError, AttributeError) as error:
        raise EngineMissing(*missing(settings.target, error)) from error


def check_reachable(settings: DockerHostConfig) -> None:
    """Check that something listens at the engine's address; addresses by ``ssh://`` are left to ssh.

    Takes about 50 µs for a local engine. Without this check the ``docker`` package leaks a socket each time nothing
    answers, and waits ``CALL_SECONDS`` for an unreachable machine.

    Raises:
        OSError: If nothing listens.
    """
    url = settings.url or os.environ.get("DOCKER_HOST")
    if not url and not (Path.home() / ".docker/config.json").exists():  # that file may name another engine
        url = DEFAULT_URL
    if url and url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect("/" + url.removeprefix("unix://").lstrip("/"))
    elif url and (parts := urlsplit(url)).port is not None and not url.startswith("ssh://"):
        socket.create_connection((parts.hostname or "", parts.port), CONNECT_SECONDS).close()


def look_up(settings: DockerHostConfig) -> str:
    """Return the IP address of ``client_address``.

    Chrome's debugging port refuses requests to a host by any name but localhost.

    Raises:
        AddressUnknown: If the name has no address.
    """
    name = settings.client_address.strip("[]")
    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressUnknown(
            f"host {settings.target} publishes ports at {name!r}, which has no address here ({error}): set address to "
            "a name or an IP address that this machine knows"
        ) from error
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    return str(min(addresses, key=lambda entry: entry[0] != family)[4][0])


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """An engine's description of itself and its machine.

    ``containers`` counts all containers there, running or not; ``ours`` those with our labels. ``limits_disk``: whether
    containers can be given a limit of disk space. ``root``: its folder, which images, containers and volumes are in.
    """

    url: str
    version: str
    limits_disk: bool
    root: str
    cores: int
    memory_gib: float
    containers: int
    ours: int


def describe(client: Any, target: str, *, ours: int) -> EngineInfo:
    """Ask an engine for its description."""
    info = client.info()
    storage = dict(info.get("DriverStatus") or ())
    return EngineInfo(
        url=target,
        version=str(info.get("ServerVersion", "")),
        # Docker's quotas are those of XFS's projects, or of file systems with snapshots of their own.
        limits_disk=info.get("Driver") in ("btrfs", "zfs") or storage.get("Backing Filesystem") == "xfs",
        root=str(info.get("DockerRootDir", "")),
        cores=int(info.get("NCPU", 0)),
        memory_gib=round(info.get("MemTotal", 0) / 2**30, 1),
        containers=int(info.get("Containers", 0)),
        ours=ours,
    )
