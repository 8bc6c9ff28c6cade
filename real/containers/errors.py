"""Faults of containers, counted by their ``cause``.

EnvStartFailed
└── ContainerStartFailed     a container did not come up
    ├── EngineMissing        no engine answers
    ├── AddressUnknown       the name of the engine's machine has no address
    ├── EngineTimedOut       the engine took too long to answer
    ├── ImageMissing         the engine does not have the image
    ├── PortClash            a published port is taken
    ├── OutOfResources       disk, memory, addresses, processes or places ran out
    ├── DeviceMissing        a device of the spec does not exist on the engine's machine
    ├── ContainerExited      the container ended while it was starting
    ├── PortsUnknown         the engine never reported its published ports
    ├── HostClosed           the host was closed before or during the start
    └── DockerRefused        the engine refused for another reason
EnvBroken
└── ContainerFault           a call on a running container failed
    ├── ContainerGone        it does not exist any more
    ├── DockerLost           no engine answers any more
    ├── DockerHung           the engine took too long to answer
    └── CallRefused          the engine refused
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlsplit

from dartsim.config.sections.desktop import LOOPBACK
from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed


class ContainerStartFailed(EnvStartFailed):
    cause: ClassVar[str] = "start_failed"


class EngineMissing(ContainerStartFailed):
    cause = "engine_missing"


class AddressUnknown(ContainerStartFailed):
    cause = "address_unknown"


class EngineTimedOut(ContainerStartFailed):
    cause = "engine_timeout"


class ImageMissing(ContainerStartFailed):
    cause = "image_missing"


class PortClash(ContainerStartFailed):
    cause = "port_clash"


class OutOfResources(ContainerStartFailed):
    cause = "out_of_resources"


class DeviceMissing(ContainerStartFailed):
    cause = "device_missing"


class ContainerExited(ContainerStartFailed):
    cause = "container_exited"


class PortsUnknown(ContainerStartFailed):
    cause = "ports_unknown"


class HostClosed(ContainerStartFailed):
    cause = "host_closed"


class DockerRefused(ContainerStartFailed):
    cause = "engine_refused"


class ContainerFault(EnvBroken):
    cause: ClassVar[str] = "container_fault"


class ContainerGone(ContainerFault):
    cause = "container_gone"


class DockerLost(ContainerFault):
    cause = "engine_lost"


class DockerHung(ContainerFault):
    cause = "engine_hung"


class CallRefused(ContainerFault):
    cause = "call_refused"


OWN_REPOSITORY = "dartsim/desktop"
"""Repository of the images that ``dartsim desktop build`` makes."""

REASONS: tuple[tuple[type[ContainerStartFailed], tuple[str, ...], str], ...] = (
    (
        PortClash,
        ("address already in use", "port is already allocated"),
        "let the engine choose the port",
    ),
    (
        DeviceMissing,
        ("error gathering device information",),
        "leave the device out, or load the module that makes it",
    ),
    (
        OutOfResources,
        (
            "no space left on device",
            "cannot allocate memory",
            "resource temporarily unavailable",
            "too many open files",
            "no available ipv4 addresses",
            "could not find an available",
            "all ports are allocated",
            "exchange full",
        ),
        "run fewer desktops on this machine or free what is named",
    ),
)
"""Parts of an engine's message, with the error and advice for each."""


def start_fault(error: BaseException, *, engine: str, image: str) -> ContainerStartFailed | None:
    """Translate an error of the ``docker`` package during a start; None if the engine did not cause it."""
    if isinstance(error, DartsimError):
        return error if isinstance(error, ContainerStartFailed) else None
    import docker.errors
    import requests

    if isinstance(error, docker.errors.ImageNotFound):
        return ImageMissing(f"{engine} has no image {image}", _image_advice(engine, image))
    if isinstance(error, docker.errors.APIError):
        return _refusal(str(error.explanation or error), engine=engine, image=image)
    if isinstance(error, requests.Timeout):
        return EngineTimedOut(f"{engine} did not answer in time ({error}): is its machine overloaded?")
    if isinstance(error, (docker.errors.DockerException, requests.RequestException, OSError)):
        return EngineMissing(*missing(engine, error))
    return None


def call_fault(error: BaseException, *, engine: str, container: str) -> ContainerFault | None:
    """Translate an error of the ``docker`` package for a running container; None if the engine did not cause it."""
    if isinstance(error, DartsimError):
        return DockerLost(error.problem, error.fix) if isinstance(error, EngineMissing) else None
    import docker.errors
    import requests

    if isinstance(error, docker.errors.NotFound):
        return ContainerGone(f"{engine} knows no container {container} any more: somebody removed it")
    if isinstance(error, docker.errors.APIError):
        return CallRefused(f"{engine} refused a call on {container}: {error.explanation or error}")
    if isinstance(error, requests.Timeout):
        return DockerHung(f"{engine} did not answer a call on {container} in time ({error})")
    if isinstance(error, (docker.errors.DockerException, requests.RequestException, OSError)):
        return DockerLost(*missing(engine, error))
    return None


def missing(engine: str, error: Any) -> tuple[str, str]:
    """Return the message that no engine answers, and advice for the system's error."""
    text = str(error)
    if "permission denied" in text.lower():
        advice = "this user may not open the socket: join the group `docker` (`sudo usermod -aG docker $USER`)"
    elif "paramiko" in text:
        advice = "ssh:// needs one more package: pip install 'docker[ssh]'"
    elif engine.startswith(("tcp://", "http")):
        advice = "is that machine up, does its engine listen there, and does the network lead there?"
    elif engine.startswith("ssh://"):
        advice = f"`docker -H {engine} version` must work without a password"
    else:
        advice = "start one (`sudo systemctl start docker`) or set DOCKER_HOST"
    return f"no Docker engine answers at {engine} ({text})", advice


def _image_advice(engine: str, image: str) -> str:
    """Return how to get an image: ours is in no registry, and its tag says how it is built."""
    if not image.startswith(f"{OWN_REPOSITORY}:"):
        return f"fetch it with `docker pull {image}`"
    variant = image.partition(":")[2].split("-")[0]
    if variant == "skeleton" and urlsplit(engine).hostname not in (None, *LOOPBACK):
        return (
            'a skeleton only runs on the machine whose /usr it mounts: set desktop.variant = "apps", and build that '
            f"with `dartsim desktop build --variant apps --host {engine}`"
        )
    option = "" if variant == "skeleton" else f" --variant {variant}"
    return (
        f"build it with `dartsim desktop build{option} --host {engine}`; its name has a hash of what it is "
        "made of, which changes with dartsim and with this machine's files"
    )


def _refusal(text: str, *, engine: str, image: str) -> ContainerStartFailed:
    low = text.lower()
    for kind, words, advice in REASONS:
        if any(word in low for word in words):
            return kind(f"{engine} could not start {image}: {text}", advice)
    return DockerRefused(f"{engine} refused to start {image}: {text}")
