"""One start of a container, in a thread, that leaves nothing behind unless it is delivered.

States: running -> delivered (the caller has it) | cleaned (nothing is left) | left (it may exist, because the engine
did not answer: the host tries again).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dartsim.config.schema import DockerHostConfig
from dartsim.real.containers.engine import CALL_SECONDS, look_up
from dartsim.real.containers.errors import ContainerExited, ContainerStartFailed, PortsUnknown, start_fault
from dartsim.real.containers.reaper import remove_container
from dartsim.real.containers.spec import ContainerSpec, create_arguments

logger = logging.getLogger(__name__)

PORTS_SECONDS = 10.0
"""Longest time until an engine reports a container's published ports."""


@dataclass(frozen=True, slots=True)
class Started:
    """A running container: its id, the IP address at which clients reach it, and its published ports by name."""

    id: str
    address: str
    ports: dict[str, int]


class Abandoned(Exception):
    """The caller no longer wants the container."""


class Launch:
    """Starts one container. ``run`` runs in a thread; ``abandon`` may be called from any.

    Invariant: once ``run`` has returned, the container exists only if it returned a ``Started``, or ``left`` is true.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        settings: DockerHostConfig,
        *,
        name: str,
        client: Callable[[], Any],
        labels: Mapping[str, str],
        volume: Callable[[Any, str], str],
    ) -> None:
        self.name = name
        self.left = False
        self._spec = spec
        self._settings = settings
        self._client = client
        self._labels = labels
        self._volume = volume
        self._lock = threading.Lock()
        self._abandoned = False
        self._delivered = False

    def abandon(self) -> bool:
        """Have it cleaned up; return whether the caller must do that itself, because it was already delivered."""
        with self._lock:
            self._abandoned = True
            return self._delivered

    def run(self) -> Started | None:
        """Create and start the container and read its ports; None if it was abandoned. Failure leaves nothing.

        Raises:
            ContainerStartFailed: If it failed.
        """
        client = None
        try:
            self._check()
            address = look_up(self._settings)
            client = self._client()
            arguments = create_arguments(
                self._spec,
                name=self.name,
                labels=self._labels,
                bind_address=self._settings.bind,
                volumes={short: self._volume(client, short) for short in self._spec.shared},
            )
            self._check()
            container = client.containers.create(**arguments)
            self._check()
            container.start()
            started = Started(container.id, address, self._read_ports(container))
            with self._lock:
                self._check()
                self._delivered = True
            return started
        except Abandoned:
            self._clean(client)
            return None
        except Exception as error:
            self._clean(client)
            fault = start_fault(error, engine=self._settings.target, image=self._spec.image)
            if fault is None or fault is error:
                raise
            raise fault from error

    def _check(self) -> None:
        if self._abandoned:
            raise Abandoned

    def _clean(self, client: Any) -> None:
        if client is None:
            return
        try:
            # By name: the engine may have created it even if its answer was lost.
            remove_container(client, self.name, seconds=CALL_SECONDS)
        except Exception as error:
            self.left = True
            logger.warning("%s may be left on %s and is tried again: %s", self.name, self._settings.target, error)

    def _read_ports(self, container: Any) -> dict[str, int]:
        """Wait until the engine reports that the container runs and its ports."""
        deadline = time.monotonic() + PORTS_SECONDS
        while True:
            self._check()
            container.reload()
            state = container.attrs["State"]
            if state["Status"] in ("exited", "dead"):
                raise self._exited(container, state)
            if not self._spec.ports:
                return {}
            ports = published_ports(container.attrs, self._spec.ports)
            if ports is not None:
                return ports
            if time.monotonic() > deadline:
                raise PortsUnknown(
                    f"{self._settings.target} did not publish all of the ports {dict(self._spec.ports)} of {self.name} "
                    f"within {PORTS_SECONDS:g} s: an internal network publishes nothing"
                )
            time.sleep(0.02)

    def _exited(self, container: Any, state: Mapping[str, Any]) -> ContainerStartFailed:
        last = container.logs(tail=5).decode(errors="replace").strip()
        return ContainerExited(
            f"{self._spec.image} ended with exit code {state.get('ExitCode')} while it was starting"
            f"{', out of memory' if state.get('OOMKilled') else ''}; it said last: {last or 'nothing'}"
        )


def published_ports(attributes: Mapping[str, Any], ports: Mapping[str, int]) -> dict[str, int] | None:
    """Return the engine's published port for each named port, or None if one is not known yet."""
    mapped = (attributes.get("NetworkSettings") or {}).get("Ports") or {}
    published: dict[str, int] = {}
    for name, port in ports.items():
        bindings = mapped.get(f"{port}/tcp") or []
        numbers = [int(binding["HostPort"]) for binding in bindings if binding.get("HostPort") not in (None, "", "0")]
        if not numbers:
            return None
        published[name] = numbers[0]
    return published
