"""One Docker engine: its address, and the addresses of its containers' ports. Blocking."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.real.containers.errors import AddressUnknown, EngineMissing, missing

DEFAULT_URL = "unix:///var/run/docker.sock"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """One machine with an engine.

    Attributes:
        url: ``unix://``, ``tcp://`` or ``ssh://``; None takes DOCKER_HOST, or else the engine of this machine.
            DOCKER_TLS_VERIFY and DOCKER_CERT_PATH configure TLS for ``tcp://``. Over ``ssh://`` every call is a
            connection of the user's ssh: ``ControlMaster auto`` in its configuration makes them cheap.
        capacity: Most of our containers at once. bind_address: Address of that machine on which ports are published.
        address: Name or IP address that clients use; None takes it from ``bind_address`` and ``url``.
        starts_at_once: Concurrent starts. calls_at_once: Other concurrent calls. call_seconds: Time limit of one call.
        ports_seconds: Time limit for the engine to report published ports. cancel_seconds: How long a canceled start
        waits for its clean-up, which then continues in the background. beat_seconds: Interval of renewing the lease
        and looking for lost containers; at most a third of a lease is used. lease_seconds: How long a container
        outlives the last sign of life of an owner on another machine.
    """

    url: str | None = None
    capacity: int = 8
    bind_address: str = "127.0.0.1"
    address: str | None = None
    starts_at_once: int = 4
    calls_at_once: int = 8
    call_seconds: float = 60.0
    ports_seconds: float = 10.0
    cancel_seconds: float = 10.0
    beat_seconds: float = 30.0
    lease_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in ("capacity", "starts_at_once", "calls_at_once"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of host {self.target} must be at least 1, got {getattr(self, name)}")
        for name in ("call_seconds", "ports_seconds", "beat_seconds", "lease_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} of host {self.target} must be positive, got {getattr(self, name)}")
        if self.url is not None and urlsplit(self.url).scheme not in ("unix", "tcp", "ssh", "http", "https"):
            raise ConfigError(f"a host's url must begin with unix://, tcp:// or ssh://, got {self.url!r}")

    @property
    def target(self) -> str:
        """The engine's address, for messages."""
        return self.url or os.environ.get("DOCKER_HOST") or DEFAULT_URL

    @property
    def machine(self) -> str | None:
        """The machine in the engine's address; None if it is this one."""
        parts = urlsplit(self.url or os.environ.get("DOCKER_HOST") or "unix://")
        if parts.scheme in ("unix", "npipe") or parts.hostname in LOOPBACK:
            return None
        return parts.hostname

    @property
    def local(self) -> bool:
        """Whether the engine runs on this machine and shares its devices and files."""
        return self.machine is None

    @property
    def client_address(self) -> str:
        """The name or IP address at which clients here reach published ports.

        Raises:
            ConfigError: If the ports are published on the loopback of another machine.
        """
        if self.address is not None:
            return self.address
        machine = self.machine
        if machine is None:
            return "127.0.0.1" if self.bind_address in (*ANY, *LOOPBACK) else self.bind_address
        if self.bind_address in LOOPBACK:
            raise ConfigError(
                f"host {self.target} publishes ports on its own {self.bind_address}, where nothing here reaches them: "
                f"set bind_address to an address of {machine} that only your machines reach, "
                "or address to the near end of a tunnel"
            )
        return machine if self.bind_address in ANY else self.bind_address

    def look_up(self) -> str:
        """Return the IP address of ``client_address``.

        Chrome's debugging port refuses requests to a host by any name but localhost.

        Raises:
            AddressUnknown: If the name has no address.
        """
        name = self.client_address.strip("[]")
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise AddressUnknown(
                f"host {self.target} publishes ports at {name!r}, which has no address here ({error}): set address to "
                "a name or an IP address that this machine knows"
            ) from error
        wanted = socket.AF_INET6 if ":" in self.bind_address else socket.AF_INET
        return str(min(found, key=lambda entry: entry[0] != wanted)[4][0])


Connect = Callable[[HostSettings], Any]
"""Opens a client of the ``docker`` package, or a fake."""

Knock = Callable[[HostSettings], None]
"""Raises an OSError if nothing listens at the engine's address."""


def connect(settings: HostSettings) -> Any:
    """Return a connected client of the ``docker`` package.

    Raises:
        EngineMissing: If no engine answers.
        ConfigError: If the ``docker`` package is missing, or TLS is set up wrongly.
    """
    try:
        import docker
        import requests
    except ImportError as error:
        raise ConfigError(f"real desktops need the `docker` package: {install_command('real')}") from error
    environment = dict(os.environ)
    if settings.url is not None:
        environment["DOCKER_HOST"] = settings.url
    try:
        knock(settings)
        return docker.from_env(
            environment=environment,
            timeout=settings.call_seconds,
            max_pool_size=settings.starts_at_once + settings.calls_at_once,
            # The user's own ssh, with its configuration and agent.
            use_ssh_client=settings.target.startswith("ssh://"),
        )
    except docker.errors.TLSParameterError as error:
        raise ConfigError(f"TLS for {settings.target}: {error}") from error
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise EngineMissing(missing(settings.target, error)) from error


def knock(settings: HostSettings) -> None:
    """Check that something listens at the engine's Unix socket, if it has one.

    Takes some 50 µs; the ``docker`` package leaks a socket each time nothing answers.

    Raises:
        OSError: If nothing listens.
    """
    url = settings.url or os.environ.get("DOCKER_HOST")
    if not url and not (Path.home() / ".docker/config.json").exists():  # which may name another engine
        url = DEFAULT_URL
    if url and url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10.0)
            connection.connect("/" + url.removeprefix("unix://").lstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """An engine's description of itself and its machine.

    ``containers`` counts all containers there, running or not; ``ours`` those with our labels.
    """

    url: str
    version: str
    api: str
    cgroup: str
    storage: str
    cores: int
    memory_gib: float
    containers: int
    ours: int


def describe(client: Any, target: str, *, ours: int) -> EngineInfo:
    """Ask an engine for its description."""
    info = client.info()
    return EngineInfo(
        url=target,
        version=str(info.get("ServerVersion", "")),
        api=str(client.api.api_version),
        cgroup=f"v{info.get('CgroupVersion', '?')}, {info.get('CgroupDriver', '?')}",
        storage=str(info.get("Driver", "")),
        cores=int(info.get("NCPU", 0)),
        memory_gib=round(info.get("MemTotal", 0) / 2**30, 1),
        containers=int(info.get("Containers", 0)),
        ours=ours,
    )
