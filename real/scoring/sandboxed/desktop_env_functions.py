"""The metrics and getters of ``desktop-env``, in that package's own virtual environment.

Modules that ``desktop-env`` imports and that are not installed are stood in for: only the functions that use them
are unavailable then. Getters reach the desktop through the driver's relays, which are there for a getter alone.
"""

from __future__ import annotations

import ast
import http.client
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import os
import sys
import tarfile
import types
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from . import relays
from .wire import CAN_BE_SENT

OCR_FOLDER = Path(sys.prefix, "easyocr")
OCR_WEIGHTS = ("craft_mlt_25k.pth", "english_g2.pth")
"""easyocr's weights for English, in ``model`` of that folder: a sandbox has no network to fetch them with."""
os.environ["EASYOCR_MODULE_PATH"] = str(OCR_FOLDER)

VM_SECONDS = 120.0
"""Longest wait for one answer of the desktop's server."""
MAX_FILE_BYTES = 128 * 2**20
"""Of one file of the desktop."""


class Absent:
    """Stands for something of a module that is not installed. Looking at it is fine; using it says what is missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __getitem__(self, key: object) -> Absent:
        return self

    def __call__(self, *args: object, **options: object) -> Any:
        raise ModuleNotFoundError(f"{self._name} is not installed in the evaluator's environment", name=self._name)


class AbsentModule(types.ModuleType):
    """A module that is not installed."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what no other finder has found, if the evaluators import it."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a specification of an empty module, or None."""
        top = fullname.partition(".")[0]
        # A part of a package that is installed is not stood in for: there its absence means something.
        if top not in self._names or (fullname != top and not isinstance(sys.modules.get(top), AbsentModule)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return the empty module."""
        return AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


class VmUnreachable(Exception):
    """The desktop's server did not answer, or nothing that makes sense: no fault of the agent."""


class NotOffered(AttributeError):
    """A getter asks for something of ``DesktopEnv`` that is not offered here."""


class Offered:
    """A part of ``DesktopEnv``. Notes what else getters ask for: some take the error for an empty answer."""

    failures: list[Exception]

    def __getattr__(self, name: str) -> Any:
        error = NotOffered(f"desktop-env's getters ask for {type(self).__name__}.{name}, which is not offered here")
        if not name.startswith("__"):
            self.failures.append(error)
        raise error


class Controller(Offered):
    """What getters ask the desktop with; unlike ``desktop-env``'s own, it never turns a dead desktop into None."""

    def __init__(self, url: str, token: str = "", failures: list[Exception] | None = None) -> None:
        self.failures = [] if failures is None else failures
        self.http_server = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get_file(self, path: str) -> bytes | None:
        try:
            return self._call("/file", form={"file_path": path}, missing=(404,))
        except VmUnreachable:
            # A folder in the file's place is the agent's doing, whatever the server says of it.
            if self._answer(["python3", "-c", CAN_BE_SENT, path, str(MAX_FILE_BYTES)]) != "False":
                raise
            self.failures.pop()
            return None

    def get_screenshot(self) -> bytes | None:
        return self._call("/screenshot")

    def execute_python_command(self, command: str) -> dict[str, Any]:
        code = f"import pyautogui; import time; pyautogui.FAILSAFE = False; {command}"
        found = self._json("/execute", dict, data={"command": ["python", "-c", code], "shell": False})
        if isinstance(found.get("output"), str):
            # python3-xlib warns on standard output of every command; the answer is what comes last.
            found["output"] = found["output"].strip().rpartition("\n")[2] + "\n"
        return dict(found)

    def get_vm_platform(self) -> str:
        return str((self._call("/platform") or b"").decode().strip())

    def get_vm_machine(self) -> str:
        return str(self.execute_python_command("import platform; print(platform.machine())").get("output", "")).strip()

    def get_accessibility_tree(self) -> str:
        return str(self._json("/accessibility", str, "AT"))

    def get_terminal_output(self) -> Any:
        return self._json("/terminal", (str, type(None)), "output")

    def get_cursor_position(self) -> Any:
        return self._json("/cursor_position", list)

    def get_vm_screen_size(self) -> Any:
        return self._json("/screen_size", dict, data={})

    def get_vm_window_size(self, app_class_name: str) -> Any:
        return self._json("/window_size", dict, form={"app_class_name": app_class_name}, missing=(404, 500))

    def get_vm_wallpaper(self) -> bytes | None:
        return self._call("/wallpaper", data={}, missing=(404,))

    def get_vm_desktop_path(self) -> Any:
        return self._json("/desktop_path", str, "desktop_path", data={}, missing=(404,))

    def get_vm_directory_tree(self, path: str) -> Any:
        return self._json("/list_directory", dict, "directory_tree", data={"path": path}, missing=(400, 404))

    def _answer(self, command: Sequence[str]) -> str:
        """Return the last line that a command writes."""
        return str(self._json("/execute", str, "output", data={"command": command, "shell": False})).strip()[-100:]

    def _json(self, route: str, kind: Any, field: str = "", **sent: Any) -> Any:
        """Return an answer, or one field of it; None for what is missing on the desktop."""
        data = self._call(route, **sent)
        if data is None:
            return None
        try:
            found = json.loads(data)
            found = found[field] if field else found
            if not isinstance(found, kind):
                raise TypeError(f"found {type(found).__name__}")
        except (ValueError, LookupError, TypeError) as error:
            raise self._fail(f"{route} answered nonsense ({error!r})") from error
        return found

    def _call(
        self,
        route: str,
        *,
        data: Mapping[str, Any] | None = None,
        form: Mapping[str, str] | None = None,
        missing: Sequence[int] = (),
    ) -> bytes | None:
        body, kind = None, "application/json"
        if form is not None:
            body, kind = urllib.parse.urlencode(form).encode(), "application/x-www-form-urlencoded"
        elif data is not None:
            body = json.dumps(data).encode()
        headers = {"Content-Type": kind, **self._headers}
        request = urllib.request.Request(self.http_server + route, data=body, headers=headers)
        # Never through a proxy: the desktop is near.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=VM_SECONDS) as reply:
                found = bytes(reply.read())
                page = "text/html" in reply.headers.get("Content-Type", "") and not reply.headers.get(
                    "Content-Disposition"
                )
        except urllib.error.HTTPError as exc:
            if exc.code in missing and not (exc.code == 404 and _is_page(exc.read(100))):
                return None
            raise self._fail(f"{route} answered {exc.code}") from exc
        except (OSError, http.client.HTTPException) as exc:
            raise self._fail(f"{route}: {exc!r}") from exc
        if page and route == "/file":
            raise self._fail(f"{route} answered with a page")
        return found

    def _fail(self, message: str) -> VmUnreachable:
        self.failures.append(VmUnreachable(message))
        return VmUnreachable(message)


class SetupController(Offered):
    """Those steps of ``desktop-env``'s controller of that name that change no files of this host."""

    def __init__(self, controller: Controller) -> None:
        self.failures = controller.failures
        self.http_server = controller.http_server
        self._controller = controller

    def _activate_window_setup(self, window_name: str, strict: bool = False, by_class: bool = False) -> None:
        self._send("/setup/activate_window", window_name=window_name, strict=strict, by_class=by_class)

    def _close_window_setup(self, window_name: str, strict: bool = False, by_class: bool = False) -> None:
        self._send("/setup/close_window", window_name=window_name, strict=strict, by_class=by_class)

    def _launch_setup(self, command: str | list[str], shell: bool = False) -> None:
        words = command.split() if isinstance(command, str) and not shell else command
        self._send("/setup/launch", command=words, shell=shell)

    def _execute_setup(self, command: str | list[str], shell: bool = False) -> None:
        self._send("/execute", command=command, shell=shell)

    def _send(self, route: str, **data: Any) -> None:
        # As desktop-env, which does not look at what became of it: the window may be gone.
        self._controller._call(route, data=data, missing=(400, 404, 500))


class Env(Offered):
    """As much of ``DesktopEnv`` as getters look at."""

    def __init__(self, desk: Mapping[str, Any]) -> None:
        self.failures = []
        self.vm_ip = "127.0.0.1"
        self._ports = desk
        self.server_port: int | None = desk.get("server")
        self.cache_dir: str = desk["cache_dir"]
        self.controller = Controller(f"http://{self.vm_ip}:{self.server_port}", desk.get("token", ""), self.failures)
        self.setup_controller = SetupController(self.controller)
        self.os_type = "Ubuntu"
        self.enable_proxy = self.current_use_proxy = False
        self.client_password: str = desk.get("password", "password")

    @property
    def chromium_port(self) -> int:
        return self._port("chromium")

    @property
    def vlc_port(self) -> int:
        return self._port("vlc")

    @property
    def vm_platform(self) -> str:
        return self.controller.get_vm_platform()

    @property
    def vm_machine(self) -> str:
        return self.controller.get_vm_machine()

    def _port(self, name: str) -> int:
        if name not in self._ports:
            raise self.controller._fail(f"the desktop publishes no port of {name}")
        return int(self._ports[name])


class DesktopEnvFunctions:
    """The functions of ``desktop-env``."""

    desktop_error, not_offered = VmUnreachable, NotOffered

    def __init__(self) -> None:
        package = importlib.util.find_spec("desktop_env.evaluators")
        folders = [] if package is None else package.submodule_search_locations or []
        sys.meta_path.append(StandIns({name for folder in folders for name in _imported(Path(folder))}))
        self._metrics = importlib.import_module("desktop_env.evaluators.metrics")
        self._getters = importlib.import_module("desktop_env.evaluators.getters")
        # It evaluates a list that the desktop wrote as if it were code.
        vars(importlib.import_module("desktop_env.evaluators.metrics.basic_os"))["eval"] = ast.literal_eval
        # It unpacks the agent's archives: a name or a link that leads out of a folder is an error (Python 3.11.4).
        if hasattr(tarfile, "data_filter"):
            tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)

    def facts(self) -> dict[str, Any]:
        return {
            "scorer": f"desktop-env {importlib.metadata.version('desktop-env')}",
            "python": ".".join(map(str, sys.version_info[:3])),
            "metrics": {name: _lacks(function) for name, function in _functions(self._metrics, "")},
            "options": {name: _options(function) for name, function in _functions(self._metrics, "")},
            "getters": {name: _lacks(function) for name, function in _functions(self._getters, "get_")},
        }

    def metric(self, name: str) -> Callable[..., Any]:
        return _named(self._metrics, name)

    def get(self, name: str, config: dict[str, Any], desktop: dict[str, Any]) -> Any:
        """Return what a getter finds on the desktop.

        Raises:
            VmUnreachable: If the desktop did not answer.
        """
        env = Env({**desktop, **relays.open_all(desktop)})
        value = _named(self._getters, f"get_{name}")(env, config)
        if env.failures:
            raise env.failures[0]
        return value


def _imported(folder: Path) -> Iterator[str]:
    """Yield the names of the modules that the files of a folder import, but for those of ``desktop-env`` itself."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            yield from (top for name in names if (top := name.partition(".")[0]) != "desktop_env")


def _named(module: types.ModuleType, name: str) -> Callable[..., Any]:
    function = vars(module).get(name)
    if not isinstance(function, types.FunctionType):
        raise ModuleNotFoundError(f"desktop-env does not have {name}")
    return function


def _functions(module: types.ModuleType, prefix: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(module).items():
        if name.startswith(prefix) and isinstance(value, types.FunctionType):
            yield name[len(prefix) :], value


def _lacks(function: Callable[..., Any]) -> list[str]:
    """Return what a function, or one that it calls, uses and what is not installed: modules, weights."""
    found: set[str] = set()
    seen: set[int] = set()
    todo: list[Any] = [function]
    while todo:
        each = todo.pop()
        if id(each) in seen or not isinstance(each, types.FunctionType):
            continue
        seen.add(id(each))
        for name in _names(each.__code__):
            value = each.__globals__.get(name)
            if isinstance(value, AbsentModule):
                found.add(value.__name__.partition(".")[0])
            elif isinstance(value, Absent):
                found.add(value._name.partition(".")[0])
            elif isinstance(value, types.ModuleType) and value.__name__ == "easyocr":
                found.update(name for name in OCR_WEIGHTS if not (OCR_FOLDER / "model" / name).is_file())
            else:
                todo.append(value)
    return sorted(found)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _options(function: Callable[..., Any]) -> list[str]:
    """Return the options that a metric may know: its parameters, and the words in its code if it takes any option.

    Metrics pass over options that they do not know, and a score by other rules than the task's is worse than none.
    """
    parameters = inspect.signature(function).parameters.values()
    found = {each.name for each in parameters}
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        found.update(word for word in _words(function.__code__) if word.isidentifier())
    return sorted(found)


def _words(code: types.CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from (each for each in constant if isinstance(each, str))
        elif isinstance(constant, types.CodeType):
            yield from _words(constant)


def _is_page(start: bytes) -> bool:
    """Whether it is an error page: an unknown route is told by a page, a missing file in JSON."""
    return start.lstrip().lower().startswith((b"<!doctype", b"<html"))
