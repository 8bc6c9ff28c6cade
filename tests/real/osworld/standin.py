"""A stand-in for the server inside a desktop, with faults on demand: over sockets, or in memory for virtual time.

``Vm`` is the desktop: a grey screen with a button, files, and what was asked of it. ``Sockets`` serves it on
127.0.0.1, at a port the system chooses; ``Memory`` is a transport for httpx that needs no socket. Tests reach this
module through the fixture ``standin``.
"""

import asyncio
import json
import threading
from collections import defaultdict, deque
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

import httpx
import numpy as np

from dartsim.core.png import encode_png
from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.grammar import MalformedAction
from dartsim.envs.actions.model import TypeText
from dartsim.real.osworld.pyautogui_code import PREFIX, plain
from dartsim.real.osworld.transport import ServerTraits

PATIENT = ServerTraits(screenshot_budget=None, restart_seconds=8.0)

JSON, HTML, BYTES = "application/json", "text/html; charset=utf-8", "application/octet-stream"
ERROR_PAGE = b"<!doctype html><title>500 Internal Server Error</title>"


class Vm:
    """The desktop behind the server.

    Faults are told by route: ``vm.fail("/execute", "lost")`` is about the next request there, one fault a request.

    hang      takes the request and never answers; nothing is done
    close     breaks the connection at once; nothing is done
    lost      does what is asked and breaks the connection before it answers
    cut       does it and breaks the connection in the middle of the answer
    half      answers with the first half of the picture, as if it were whole
    html500   answers with an error page
    junk      answers with JSON that makes no sense
    black     answers with a picture of a screen that is off
    slow      answers after ``slow_seconds``

    Attributes:
        up: Whether it listens.
        screenshot_seconds: How long a screenshot takes.
        max_screenshots: After so many screenshots the server dies, as OSWorld's of its leak; None: never.
        screenshots: Taken since the server started.
        total_screenshots: Taken in all.
        moving: Whether a window shows a video.
        windows: Ids of the open windows.
        windows_die_with_server: Whether a server that dies takes the windows along.
        splashes: Ids of windows that are splash screens.
        debug_mode: Whether the server is replaced when its file changes, as OSWorld's.
    """

    def __init__(self, *, width=320, height=240, slow_seconds=1.0):
        self.width, self.height = width, height
        self.screen = np.full((height, width, 3), 120, np.uint8)
        self.screen[: height // 8] = (60, 90, 160)
        self.faults = defaultdict(deque)
        self.slow_seconds = slow_seconds
        self.up = True
        self.screenshot_seconds = 0.0
        self.max_screenshots = None
        self.screenshots = self.total_screenshots = 0
        self.moving = False
        self.windows = ["0x01000001"]
        self.windows_die_with_server = False
        self.splashes = set()
        self.debug_mode = False
        self.requests = []
        self.executed = []
        self.actions = []
        self.typed = ""
        self.files = {}
        self.launched = []
        self.pid = 100
        self.dies_on_kill = True
        self.restart_seconds = 5.0
        self.returncode = 0
        self.on_actions = None
        self.on_launch = None
        self.running = 0
        self.overlaps = 0

    def fail(self, route, *faults):
        self.faults[route].extend(faults)

    def paint(self, level=200, *, top=0, left=0, side=40):
        self.screen[top : top + side, left : left + side] = level

    def paint_later(self, seconds, level=200, **where):
        asyncio.get_running_loop().call_later(seconds, lambda: self.paint(level, **where))

    def die(self, seconds=None):
        """Stop listening, for a while."""
        self.up = False
        self.pid += 1
        self.screenshots = 0
        if self.windows_die_with_server:
            self.windows = []
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._rise)

    def _rise(self):
        self.up = True

    def _reload(self):
        self.pid += 1
        self.screenshots = 0

    # ---- requests

    async def answer(self, method, path, headers, body):
        """Return (fault, status, content type, body)."""
        self.requests.append(path)
        fault = self.faults[path].popleft() if self.faults[path] else None
        self.overlaps += self.running
        self.running += 1
        try:
            if fault == "hang":
                await asyncio.Event().wait()
            if path == "/screenshot" and self.screenshot_seconds:
                await asyncio.sleep(self.screenshot_seconds)
            if fault == "slow":
                await asyncio.sleep(self.slow_seconds)
            if fault == "close":
                return fault, 0, "", b""
            if fault == "html500":
                return None, 500, HTML, ERROR_PAGE
            if fault == "junk":
                return None, 200, JSON, b'["junk"]'
            if fault == "black":
                return None, 200, "image/png", encode_png(np.zeros_like(self.screen))
            status, kind, content = self.route(method, path, headers, body)
            if fault == "half":
                content = content[: len(content) // 2]
            return fault, status, kind, content
        finally:
            self.running -= 1

    def route(self, method, path, headers, body):
        wanted, handle = ROUTES.get(path, (None, None))
        if wanted is None:
            return 404, HTML, b"<!doctype html>\n<title>404 Not Found</title>"
        if method != wanted:
            return 405, HTML, b"<!doctype html>\n<title>405 Method Not Allowed</title>"
        kind = headers.get("content-type", "")
        values = {}
        if kind.startswith(JSON):
            values = json.loads(body)
        elif kind.startswith("application/x-www-form-urlencoded"):
            values = dict(parse_qsl(body.decode()))
        elif kind.startswith("multipart/form-data"):
            values = multipart(kind, body)
        status, content = handle(self, values)
        if isinstance(content, bytes):
            return status, "image/png" if content.startswith(b"\x89PNG") else BYTES, content
        if isinstance(content, str):
            return status, HTML, content.encode()  # as Flask calls every text
        return status, JSON, json.dumps(content).encode()

    def screenshot(self, _):
        self.screenshots += 1
        self.total_screenshots += 1
        if self.screenshots == self.max_screenshots:
            self.die(self.restart_seconds)
        if self.moving:
            level = int(asyncio.get_running_loop().time() * 25) % 200  # 25 pictures a second
            self.screen[100:200, 100:200] = (level, 250 - level, 10)
        return 200, encode_png(self.screen)

    def execute(self, values):
        command = values["command"]
        words = command.split() if isinstance(command, str) else command
        match words:
            case ["python", "-c", code] if code.startswith(PREFIX):
                return self.act(code.removeprefix(PREFIX))
            case ["bash", "-c", "echo $PPID"]:
                return 200, done(f"Xlib.xauth: warning\n{self.pid}\n")
            case ["bash", "-c", text] if "kill -9" in text:
                if self.dies_on_kill:
                    asyncio.get_running_loop().call_later(0.3, self.die, self.restart_seconds)
                return 200, done("")
            case ["bash", "-c", text] if "touch" in text:
                if self.debug_mode:
                    asyncio.get_running_loop().call_later(0.5, self._reload)
                return 200, done("", returncode=int(not self.debug_mode))
            case ["xprop", "-id", window, _]:
                kind = "SPLASH" if window in self.splashes else "NORMAL"
                return 200, done(f"_NET_WM_WINDOW_TYPE(ATOM) = _NET_WM_WINDOW_TYPE_{kind}\n")
            case ["wmctrl", "-l"]:
                return 200, done("".join(f"{window}  0 host title\n" for window in self.windows))
            case ["echo", *rest]:
                self.executed.append(words)
                return 200, done(" ".join(rest) + "\n")
            case ["true" | "false" as word]:
                self.executed.append(words)
                return 200, done("", returncode=int(word == "false"))
        return 500, {"status": "error", "message": f"[Errno 2] No such file or directory: {words[0]!r}"}

    def act(self, code):
        self.executed.append(code)
        try:
            actions = make_grammar("pyautogui", self.width, self.height).parse(plain(code))
        except MalformedAction as exc:
            return 200, done("", f"Traceback\nNameError: {exc}\n", 1)
        if self.returncode:
            return 200, done("", "Traceback\nXlib.error.DisplayConnectionError: no display\n", self.returncode)
        self.actions += actions
        for action in actions:
            if isinstance(action, TypeText):
                self.typed += action.text
        if self.on_actions is not None:
            self.on_actions(actions)
        return 200, done("")

    def launch(self, values):
        self.launched.append(values["command"])
        if self.on_launch is not None:
            self.on_launch()
        return 200, "launched successfully"

    def file(self, values):
        path = values.get("file_path")
        return (200, self.files[path]) if path in self.files else (404, {"error": "File not found"})

    def upload(self, values):
        self.files[values["file_path"]] = values["file_data"]
        return 200, f"File Uploaded: {len(values['file_data'])} bytes"

    def list_directory(self, values):
        if not any(path.startswith(values["path"].rstrip("/") + "/") for path in self.files):
            return 400, {"error": "no such folder"}
        children = [{"type": "file", "name": path.rpartition("/")[2], "children": []} for path in self.files]
        tree = {"type": "directory", "name": values["path"].rpartition("/")[2], "children": children}
        return 200, {"directory_tree": tree}

    def open_file(self, values):
        return (200, "File opened") if values["path"] in self.files else (404, "File not found")


def done(output, error="", returncode=0):
    return {"status": "success", "output": output, "error": error, "returncode": returncode}


def multipart(kind, body):
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    values = {}
    for part in message.iter_parts():
        data = part.get_payload(decode=True)
        values[part.get_param("name", header="content-disposition")] = data if part.get_filename() else data.decode()
    return values


TREE = '<desktop-frame name="main"><application name="thunar"/></desktop-frame>'
ROUTES = {
    "/screenshot": ("GET", Vm.screenshot),
    "/execute": ("POST", Vm.execute),
    "/execute_with_verification": (
        "POST",
        lambda vm, values: (
            (200, done("") | {"verification": "passed", "wait_time": 0.1})
            if values["verification"].get("command_success") == "true"
            else (500, {"status": "verification_failed", "verification": "failed", "wait_time": 10})
        ),
    ),
    "/accessibility": ("GET", lambda vm, _: (200, {"AT": TREE})),
    "/terminal": ("GET", lambda vm, _: (200, {"output": None, "status": "success"})),
    "/desktop_path": ("POST", lambda vm, _: (200, {"desktop_path": "/home/user/Desktop"})),
    "/wallpaper": ("POST", lambda vm, _: (200, b"picture")),
    "/list_directory": ("POST", Vm.list_directory),
    "/file": ("POST", Vm.file),
    "/setup/upload": ("POST", Vm.upload),
    "/setup/open_file": ("POST", Vm.open_file),
    "/setup/launch": ("POST", Vm.launch),
    "/setup/activate_window": ("POST", lambda vm, values: (200, f"Window {values['window_name']} activated")),
    "/setup/close_window": ("POST", lambda vm, values: (200, f"Window {values['window_name']} closed")),
    "/setup/change_wallpaper": ("POST", lambda vm, _: (200, "Wallpaper changed")),
}


class Memory(httpx.AsyncBaseTransport):
    """Answers httpx without a socket, so that a client can be tested in virtual time."""

    def __init__(self, vm):
        self.vm = vm

    async def handle_async_request(self, request):
        stage = request.extensions["stage"]
        stage.may_be_sent = False
        if not self.vm.up:
            raise httpx.ConnectError("connection refused", request=request)
        stage.may_be_sent = True
        body = await request.aread()
        asked = (request.method, request.url.path, request.headers, body)
        fault, status, kind, content = await self.vm.answer(*asked)
        if fault in ("close", "lost"):
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
        stream = Broken(content) if fault == "cut" else httpx.ByteStream(content)
        return httpx.Response(status, headers={"content-type": kind}, stream=stream, request=request)


class Broken(httpx.AsyncByteStream):
    """The first half of an answer."""

    def __init__(self, content):
        self.content = content

    async def __aiter__(self):
        yield self.content[: len(self.content) // 2]
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


class Sockets:
    """Serves a ``Vm`` while its ``async with`` block runs, on 127.0.0.1 or at a socket that listens already."""

    def __init__(self, vm, listening=None):
        self.vm = vm
        self.listening = listening
        self.base_url = ""
        self._serving = set()

    async def __aenter__(self):
        where = {"host": "127.0.0.1", "port": 0} if self.listening is None else {"sock": self.listening}
        self._server = await asyncio.start_server(self._serve, **where)
        host, port = self._server.sockets[0].getsockname()
        self.base_url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *exc):
        await self.stop()

    async def stop(self):
        """Listen no more; connections are refused from now on."""
        self._server.close()
        # `wait_closed` of newer Pythons waits for hung connections, which nobody will end.

    async def _serve(self, reader, writer):
        self._serving.add(asyncio.current_task())  # a client that hangs up takes asyncio's own reference with it
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, path, _ = first.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            fault, status, kind, content = await self.vm.answer(method, path, headers, body)
            if fault not in ("close", "lost"):
                head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n")
                writer.write(content[: len(content) // 2] if fault == "cut" else content)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@contextmanager
def served(vm):
    """Serve a ``Vm`` from a loop of its own in another thread, and yield its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Sockets(vm)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        yield server.base_url
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
