"""A small Docker engine in memory, and a real one where there is one.

The fake has only what ``real.containers`` calls of the ``docker`` package, with its names and errors. Hooks make calls
slow or broken.
"""

import io
import shutil
import subprocess
import tarfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from dartsim.real.containers.engine import connect

IMAGE = "dartsim-test:busybox"


def api_error(status: int, text: str, kind: str = "APIError") -> Exception:
    import docker.errors
    import requests

    response = requests.Response()
    response.status_code = status
    return getattr(docker.errors, kind)(text, response=response, explanation=text)


class FakeContainer:
    """What ``containers.get`` and ``containers.create`` of the docker package return."""

    def __init__(self, engine, arguments):
        self.engine = self.client = engine
        self.arguments = arguments
        self.name = arguments["name"]
        self.id = f"id-of-{self.name}"
        self.labels = arguments["labels"]
        self.made = engine.time
        self.status = "created"
        self.ports: dict[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.reload(hook=False)

    def start(self):
        self.engine.hook("start", self)
        self.status = "running"
        for port, (address, _) in self.arguments.get("ports", {}).items():
            number = next(self.engine.free_ports)
            self.ports[port] = [{"HostIp": address, "HostPort": str(number)}]

    def reload(self, hook: bool = True):
        if hook:
            self.engine.hook("reload", self)
        state = {"Status": self.status, "ExitCode": 3, "OOMKilled": False}
        self.attrs = {"State": state, "NetworkSettings": {"Ports": dict(self.ports)}}

    def logs(self, tail) -> bytes:
        return b"it said this\n"

    def pause(self):
        self.engine.hook("pause", self)
        self.status = "paused"

    def kill(self):
        self.status = "exited"


class FakeEngine:
    """The engine, and the client too. ``hooks[call]`` is called first with what the call is about, and may raise."""

    def __init__(self):
        self.names: dict[str, FakeContainer] = {}
        self.shared: dict[str, dict[str, Any]] = {}
        self.hooks: dict[str, Callable[[Any], None]] = {}
        self.free_ports = iter(range(32768, 60000))
        self.time = 1_000_000.0
        self.seen: Counter[str] = Counter()
        self.most_at_once = 0
        self._lock = threading.Lock()
        self.containers, self.images, self.volumes = FakeContainers(self), FakeImages(self), FakeVolumes(self)
        self.api = FakeApi(self)

    def connect(self, settings):
        self.hook("connect", settings)
        return self

    def check_reachable(self, settings):
        """Somebody is always there."""

    def hook(self, call: str, about):
        with self._lock:
            self.seen[call] += 1
        self.hooks.get(call, lambda _: None)(about)

    def info(self) -> dict[str, Any]:
        self.hook("info", None)
        return {
            "SystemTime": self.clock(),
            "NCPU": 2,
            "MemTotal": 2**30,
            "Containers": len(self.names),
            "CgroupVersion": "2",
        }

    def clock(self) -> str:
        return datetime.fromtimestamp(self.time, UTC).isoformat()

    def close(self):
        self.hook("close", None)


@dataclass
class FakeContainers:
    engine: FakeEngine
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, **arguments) -> FakeContainer:
        engine = self.engine
        with self._lock:
            self._at_once += 1
            engine.most_at_once = max(engine.most_at_once, self._at_once)
        try:
            engine.hook("create", arguments)
            container = FakeContainer(engine, arguments)
            engine.names[container.name] = container
            engine.hook("created", arguments)
            return container
        finally:
            with self._lock:
                self._at_once -= 1

    def get(self, name: str) -> FakeContainer:
        self.engine.hook("get", name)
        for container in list(self.engine.names.values()):
            if name in (container.name, container.id):
                return container
        raise api_error(404, f"No such container: {name}", "NotFound")


@dataclass
class FakeImages:
    engine: FakeEngine

    def get(self, name: str):
        self.engine.hook("image", name)


@dataclass
class FakeVolumes:
    engine: FakeEngine

    def create(self, name: str, labels: dict[str, str]):
        self.engine.shared[name] = {"Name": name, "Labels": labels, "CreatedAt": self.engine.clock()}


@dataclass
class FakeApi:
    engine: FakeEngine
    api_version: str = "1.41"
    base_url: str = "http+docker://localhost"

    def containers(self, all: bool, filters: dict[str, Any]) -> list[dict[str, Any]]:
        assert all
        self.engine.hook("list", filters)
        (label,) = filters["label"]
        containers = [c for c in list(self.engine.names.values()) if label in c.labels]
        return [{"Id": c.id, "Names": [f"/{c.name}"], "Labels": c.labels, "Created": c.made} for c in containers]

    def remove_container(self, name: str, force: bool, v: bool):
        assert force
        assert v
        self.engine.hook("remove", name)
        self.engine.names.pop(self.engine.containers.get(name).name, None)

    def volumes(self, filters: dict[str, Any]) -> dict[str, Any]:
        return {"Volumes": list(self.engine.shared.values()) or None}

    def remove_volume(self, name: str, force: bool):
        self.engine.shared.pop(name, None)

    def exec_create(self, container: str, argv: list[str]) -> dict[str, str]:
        return {"Id": " ".join(argv)}

    def exec_start(self, identity: str) -> bytes:
        return identity.encode()

    def exec_inspect(self, identity: str) -> dict[str, int]:
        return {"ExitCode": 0}


@pytest.fixture
def engine() -> FakeEngine:
    pytest.importorskip("docker")
    return FakeEngine()


@pytest.fixture
def refusal() -> Callable[..., Exception]:
    """Make an error of the engine: ``refusal(status, text, kind="APIError")``."""
    pytest.importorskip("docker")
    return api_error


@pytest.fixture(scope="session")
def real_engine(docker_engine):
    """A client of a real engine that has the image ``IMAGE``."""
    client = connect(docker_engine)
    _import_busybox(client)
    yield client
    client.close()


def _import_busybox(client):
    """Make an image of one static program; no registry is asked."""
    import docker.errors

    try:
        client.images.get(IMAGE)
        return
    except docker.errors.ImageNotFound:
        pass
    busybox = shutil.which("busybox")
    if busybox is None or "interpreter" in _headers(busybox):
        pytest.skip("no static busybox: apt-get install busybox-static")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in ("sh", "sleep", "httpd", "cat"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    repository, _, tag = IMAGE.partition(":")
    client.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)


def _headers(program: str) -> str:
    try:
        return subprocess.run(["readelf", "-l", program], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""
