"""One real desktop for a file of tests, and a plain HTTP client of the server inside it."""

import contextlib
import http.client
import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

JSON = {"Content-Type": "application/json"}


class Caller:
    """Sends one request at a time and returns (status, content type, body)."""

    def __init__(self, host: str, port: int):
        self.address = (host, port)

    def send(self, method: str, path: str, body: bytes | str | None = None, headers=None) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request(method, path, body, dict(headers or {}))
            reply = connection.getresponse()
            return reply.status, reply.headers.get("Content-Type", ""), reply.read()
        finally:
            connection.close()

    def get(self, path: str):
        return self._read(*self.send("GET", path))

    def post(self, path: str, data):
        return self._read(*self.send("POST", path, json.dumps(data), JSON))

    def form(self, path: str, text: str):
        return self._read(*self.send("POST", path, text, {"Content-Type": "application/x-www-form-urlencoded"}))

    def upload(self, path: str, data: bytes):
        mark = "line-of-the-form"
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n{path}\r\n'.encode(),
            f'--{mark}\r\nContent-Disposition: form-data; name="file_data"; filename="x"\r\n'.encode(),
            b"Content-Type: application/octet-stream\r\n\r\n" + data + f"\r\n--{mark}--\r\n".encode(),
        ]
        headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return self._read(*self.send("POST", "/setup/upload", b"".join(parts), headers))

    def act(self, code: str):
        prefix = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
        return self.post("/execute", {"command": ["python", "-c", prefix + code], "shell": False})

    @staticmethod
    def _read(status: int, kind: str, body: bytes):
        """Return (status, the body as JSON, text or bytes)."""
        if kind == "application/json":
            return status, json.loads(body)
        return status, body.decode() if kind.startswith("text/") else body

    def until(self, what: str, test, seconds: float = 30.0):
        """Call ``test`` until it returns something true; a server that is not up yet is asked again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                found = test()
                if found:
                    return found
            time.sleep(0.05)
        raise AssertionError(f"{what} did not happen within {seconds:g} s")


@pytest.fixture(scope="session")
def engine(docker_engine) -> Iterator[Any]:
    from dartsim.real.containers.engine import connect

    client = connect(docker_engine)
    yield client
    client.close()


@pytest.fixture(scope="session")
def need_image(engine) -> Any:
    """Skip a test, by name, if the engine has no image of a variant: ``need_image("apps")``."""
    from dartsim.real.desktop.images import image_name

    def need(variant: Any) -> None:
        if not engine.api.images(name=image_name(variant)):
            pytest.skip(f"no image {image_name(variant)}: `dartsim desktop build --variant {variant}`")

    return need


@pytest.fixture(scope="session")
def start_desktop(engine, desktop_image) -> Iterator[Any]:
    """Start a desktop: ``start_desktop(app=…, warm_actions=…, **settings of DesktopConfig)`` -> (container, caller)."""
    from dartsim.config.schema import DesktopConfig
    from dartsim.real.containers.spec import create_arguments
    from dartsim.real.desktop import desktop_spec

    made: list[Any] = []
    numbers = itertools.count()

    def start(*, app: str = "", warm_actions: bool = True, **settings) -> tuple[Any, Caller]:
        spec = desktop_spec(DesktopConfig(image=desktop_image, **settings), app=app, warm_actions=warm_actions)
        name = f"dartsim-desktop-test-{os.getpid()}-{next(numbers)}"
        labels = {"dartsim.test": "desktop"}
        container = engine.containers.create(
            **create_arguments(spec, name=name, labels=labels, bind_address="127.0.0.1")
        )
        made.append(container)
        container.start()
        container.reload()
        port = int(container.ports["5000/tcp"][0]["HostPort"])
        caller = Caller("127.0.0.1", port)
        caller.until("the first screenshot", lambda: caller.send("GET", "/screenshot")[0] == 200)
        return container, caller

    yield start
    for container in made:
        container.remove(force=True, v=True)


@pytest.fixture(scope="session")
def make_caller():
    return Caller
