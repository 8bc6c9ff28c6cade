"""A small Docker engine in memory, and a real one where there is one.

The fake has only what ``real.containers`` calls of the ``docker`` package, with its names and errors. Hooks make calls
slow or broken.
"""

from __future__ import annotations

import functools
import io
import shutil
import subprocess
import tarfile
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dartsim.core.errors import DartsimError
from dartsim.real.containers.engine import HostSettings, connect

IMAGE = "dartsim-test:busybox"


def api_error(status: int, text: str, kind: str = "APIError") -> Exception:
    import docker.errors
    import requests

    response = requests.Response()
    response.status_code = status
    return getattr(docker.errors, kind)(text, response=response, explanation=text)


class FakeContainer:
    """What ``containers.get`` and ``containers.create`` of the docker package return."""

    def __init__(self, engine: FakeEngine, arguments: dict[str, Any]) -> None:
        self.engine = self.client = engine
        self.arguments = arguments
        self.name = arguments["name"]
        self.id = f"id-of-{self.name}"
        self.labels = arguments["labels"]
        self.status = "created"
        self.ports: dict[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.reload(hook=False)

    def start(self) -> None:
        self.engine.hook("start", self)
        self.status = "running"
        for port, (address, _) in self.arguments.get("ports", {}).items():
            number = next(self.engine.free_ports)
            self.ports[port] = [{"HostIp": address, "HostPort": str(number)}]

    def reload(self, hook: bool = True) -> None:
        if hook:
            self.engine.hook("reload", self)
        state = {"Status": self.status, "ExitCode": 3, "OOMKilled": False}
        self.attrs = {"State": state, "NetworkSettings": {"Ports": dict(self.ports)}}

    def logs(self, tail: Any) -> bytes:
        return b"it said this\n"

    def pause(self) -> None:
        self.engine.hook("pause", self)
        self.status = "paused"

    def kill(self, signal: str) -> None:
        self.status = "exited"


class FakeEngine:
    """The engine, and the client too. ``hooks[call]`` is called first with what the call is about, and may raise."""

    def __init__(self) -> None:
        self.names: dict[str, FakeContainer] = {}
        self.records: dict[str, dict[str, str]] = {}
        self.hooks: dict[str, Callable[[Any], None]] = {}
        self.free_ports = iter(range(32768, 60000))
        self.time = 1_000_000.0
        self.seen: Counter[str] = Counter()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.containers = SimpleNamespace(create=self._create, get=self._get)
        self.images = SimpleNamespace(get=lambda name: self.hook("image", name))
        self.volumes = SimpleNamespace(create=self._record, get=self._get_record)
        self.api = SimpleNamespace(
            api_version="1.41",
            containers=self._list,
            remove_container=self._remove,
            volumes=self._list_records,
            base_url="http+docker://localhost",
            exec_create=lambda container, argv, user: {"Id": " ".join(argv)},
            exec_start=lambda identity: identity.encode(),
            exec_inspect=lambda identity: {"ExitCode": 0},
            remove_volume=lambda name, force: self.records.pop(name, None),
        )

    def connect(self, settings: Any) -> FakeEngine:
        self.hook("connect", settings)
        return self

    def knock(self, settings: Any) -> None:
        """Somebody is always there."""

    def hook(self, call: str, about: Any) -> None:
        with self._lock:
            self.seen[call] += 1
        self.hooks.get(call, lambda _: None)(about)

    def info(self) -> dict[str, Any]:
        self.hook("info", None)
        now = datetime.fromtimestamp(self.time, UTC).isoformat()
        return {"SystemTime": now, "NCPU": 2, "MemTotal": 2**30, "Containers": len(self.names), "CgroupVersion": "2"}

    def close(self) -> None:
        self.hook("close", None)

    def _create(self, **arguments: Any) -> FakeContainer:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.hook("create", arguments)
            container = FakeContainer(self, arguments)
            self.names[container.name] = container
            self.hook("created", arguments)
            return container
        finally:
            with self._lock:
                self._at_once -= 1

    def _get(self, name: str) -> FakeContainer:
        self.hook("get", name)
        for container in list(self.names.values()):
            if name in (container.name, container.id):
                return container
        raise api_error(404, f"No such container: {name}", "NotFound")

    def _remove(self, name: str, force: bool, v: bool) -> None:
        assert force
        assert v
        self.hook("remove", name)
        self.names.pop(self._get(name).name, None)

    def _list(self, all: bool, filters: dict[str, Any]) -> list[dict[str, Any]]:
        assert all
        self.hook("list", filters)
        (label,) = filters["label"]
        found = [c for c in list(self.names.values()) if label in c.labels]
        return [{"Id": c.id, "Names": [f"/{c.name}"], "Labels": c.labels} for c in found]

    def _record(self, name: str, labels: dict[str, str]) -> None:
        self.hook("record", name)
        self.records[name] = labels

    def _get_record(self, name: str) -> Any:
        if name not in self.records:
            raise api_error(404, f"no such volume: {name}", "NotFound")
        return SimpleNamespace(remove=lambda force: self.records.pop(name))

    def _list_records(self, filters: dict[str, Any]) -> dict[str, Any]:
        return {"Volumes": [{"Name": n, "Labels": labels} for n, labels in self.records.items()] or None}


@pytest.fixture
def engine() -> FakeEngine:
    pytest.importorskip("docker")
    return FakeEngine()


@pytest.fixture
def refusal() -> Callable[..., Exception]:
    """Make an error of the engine: ``refusal(status, text, kind="APIError")``."""
    pytest.importorskip("docker")
    return api_error


@functools.cache
def _client() -> Any:
    """Return a client of the real engine, or say why there is none."""
    try:
        return connect(HostSettings())
    except DartsimError as error:
        return str(error)


@pytest.fixture
def real_engine() -> Any:
    """A client of a real engine that has the image ``IMAGE``; skips by name without one."""
    client = _client()
    if isinstance(client, str):
        pytest.skip(client)
    _import_busybox(client)
    return client


@functools.cache
def _import_busybox(client: Any) -> None:
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
