"""The connection to a Ray cluster, or to a local Ray that we start on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.real.ray_cluster.parts import node_address
from dartsim.real.scratch import scratch

logger = logging.getLogger(__name__)

LOCAL = "local"
"""The address that starts a local Ray, on the loopback of this machine."""

NAMESPACE = "dartsim"

_LOOPBACK = "127.0.0.1"
_REACH_SECONDS = 10.0

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def connected(address: str, *, cpus: float = 0.0, resources: Mapping[str, float] | None = None) -> Iterator[None]:
    """Connect to Ray for the length of a block; a nested call changes nothing.

    Args:
        address: ``local``, ``HOST:PORT`` of a cluster's head, ``auto``, or ``ray://HOST:PORT``.
        cpus: Least CPUs of a local Ray, whatever this machine has: they only count actors.
        resources: Custom resources of a local Ray.

    Raises:
        ConfigError: If Ray is not installed, or no cluster answers at the address.
    """
    ray = _ray(local=address == LOCAL)
    if ray.is_initialized():
        yield
        return
    check_reachable(address)
    folder = str(scratch("ray", "/tmp")) if address == LOCAL else None  # sockets: short paths
    try:
        try:
            with _our_sigterm():
                ray.init(**_options(address, cpus, resources or {}, folder))
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _no_cluster(address, error) from error
        if address == LOCAL and node_address() != _LOOPBACK:
            logger.warning("Ray was imported before it was told to keep to the loopback; it listens on every address")
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _our_sigterm() -> Iterator[None]:
    """Keep our handler of SIGTERM: Ray's ends the process before anything is written."""
    ours = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(ours) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ours)


def _ray(*, local: bool) -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if local:
        # On Linux, Ray's servers listen on all addresses unless it believes that it cannot form clusters. Read when ray
        # is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError(f"ray.address needs ray, which is not installed: {install_command('ray')}") from None
    return ray


def check_reachable(address: str) -> None:
    """Check that a cluster listens at an address: Ray itself would try for minutes.

    Raises:
        ConfigError: If none does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return  # local, auto, or a name that Ray may know
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS):
            pass
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"no Ray cluster answers at {address!r} ({str(error)[:200]})",
        f"start one with `ray start --head`, or take {LOCAL!r} for a local Ray; if the cluster authenticates, its "
        "token is needed here too (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH)",
    )


def _options(address: str, cpus: float, resources: Mapping[str, float], folder: str | None) -> dict[str, Any]:
    common = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.WARNING}
    if address != LOCAL:
        return {"address": address, **common}
    return {
        "address": LOCAL,
        "num_cpus": max(os.cpu_count() or 1, int(cpus + 0.999)),
        "resources": dict(resources),
        "include_dashboard": False,
        "_node_ip_address": _LOOPBACK,
        "_temp_dir": folder,
        **common,
    }
