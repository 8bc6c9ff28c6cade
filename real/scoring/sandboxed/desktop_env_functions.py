"""The metrics and getters of ``desktop-env``, in that package's own virtual environment.

Modules that ``desktop-env`` imports and that are not installed are stood in for: only the functions that use them
are unavailable then. Getters reach the desktop through the driver's relays, which are there for a getter alone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import inspect
import json
import os
import sys
import tarfile
import types
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import relays

STAND_INS = frozenset(
    [
        "acoustid",
        "bs4",
        "borb",
        "cv2",
        "docx",
        "dotenv",
        "easyocr",
        "fastdtw",
        "fitz",
        "formulas",
        "imagehash",
        "librosa",
        "lxml",
        "mutagen",
        "odf",
        "openpyxl",
        "pandas",
        "pdfplumber",
        "PIL",
        "playwright",
        "pptx",
        "pydrive",
        "PyPDF2",
        "pypdf",
        "pytz",
        "rapidfuzz",
        "requests",
        "requests_toolbelt",
        "scipy",
        "skimage",
        "tldextract",
        "xmltodict",
        "yaml",
    ]
)
"""Modules outside ``desktop-env`` that its evaluators import at their top."""

OCR_FOLDER = Path(sys.prefix, "easyocr")
OCR_WEIGHTS = ("craft_mlt_25k.pth", "english_g2.pth")
"""easyocr's weights for English, in ``model`` of that folder: a sandbox has no network to fetch them with."""
os.environ["EASYOCR_MODULE_PATH"] = str(OCR_FOLDER)

VM_SECONDS = 120.0
"""Longest wait for one answer of the desktop's server."""


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
    """Finds what no other finder has found, if it is one of ``STAND_INS``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a specification of an empty module, or None."""
        top = fullname.partition(".")[0]
        # A part of a package that is installed is not stood in for: there its absence means something.
        if top not in STAND_INS or (fullname != top and not isinstance(sys.modules.get(top), AbsentModule)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return the empty module."""
        return AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""


class VmUnreachable(Exception):
    """The desktop's server did not answer: no fault of the agent."""


class Controller:
    """What getters ask the desktop with; unlike ``desktop-env``'s own, it never turns a dead desktop into None.

    Attributes:
        failure: Why the desktop did not answer, the last time that it did not. Some getters swallow the error.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.failure: VmUnreachable | None = None

    def get_file(self, path: str) -> bytes | None:
        return self._call("/file", form={"file_path": path}, missing=(404,))

    def execute_python_command(self, command: str) -> dict[str, Any] | None:
        code = f"import pyautogui; import time; pyautogui.FAILSAFE = False; {command}"
        found = _loads(self._call("/execute", data={"command": ["python", "-c", code], "shell": False}))
        if isinstance(found, dict) and isinstance(found.get("output"), str):
            # python3-xlib warns on standard output of every command; the answer is what comes last.
            found["output"] = found["output"].strip().rpartition("\n")[2] + "\n"
        return found if isinstance(found, dict) else None

    def get_vm_platform(self) -> str:
        return str((self._call("/platform") or b"").decode().strip())

    def get_accessibility_tree(self) -> str | None:
        return _text(self._call("/accessibility"), "AT")

    def get_terminal_output(self) -> str | None:
        return _text(self._call("/terminal"), "output")

    def get_vm_screen_size(self) -> Any:
        return _loads(self._call("/screen_size", data={}))

    def get_vm_window_size(self, app_class_name: str) -> Any:
        return _loads(self._call("/window_size", form={"app_class_name": app_class_name}, missing=(404, 500)))

    def get_vm_wallpaper(self) -> bytes | None:
        return self._call("/wallpaper", data={}, missing=(404,))

    def get_vm_desktop_path(self) -> str | None:
        return _text(self._call("/desktop_path", data={}, missing=(404,)), "desktop_path")

    def get_vm_directory_tree(self, path: str) -> Any:
        return _field(self._call("/list_directory", data={"path": path}, missing=(400, 404)), "directory_tree")

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
        request = urllib.request.Request(self._url + route, data=body, headers={"Content-Type": kind, **self._headers})
        # Never through a proxy: the desktop is near.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=VM_SECONDS) as reply:
                return bytes(reply.read())
        except urllib.error.HTTPError as exc:
            if exc.code in missing:
                return None
            self.failure = VmUnreachable(f"{route} answered {exc.code}")
            raise self.failure from exc
        except (OSError, urllib.error.URLError) as exc:
            self.failure = VmUnreachable(f"{route}: {exc}")
            raise self.failure from exc


class Env:
    """As much of ``DesktopEnv`` as getters look at."""

    def __init__(self, desk: Mapping[str, Any]) -> None:
        self.vm_ip = "127.0.0.1"
        self.server_port: int | None = desk.get("server")
        self.chromium_port: int | None = desk.get("chromium")
        self.vlc_port: int | None = desk.get("vlc")
        self.cache_dir: str = desk["cache_dir"]
        self.controller = Controller(f"http://{self.vm_ip}:{self.server_port}", desk.get("token", ""))
        self.current_use_proxy = False

    @property
    def vm_platform(self) -> str:
        return self.controller.get_vm_platform()

    @property
    def vm_machine(self) -> str:
        done = self.controller.execute_python_command("import platform; print(platform.machine())")
        return str((done or {}).get("output", "")).strip()


class DesktopEnvFunctions:
    """The functions of ``desktop-env``."""

    desktop_error = VmUnreachable

    def __init__(self) -> None:
        sys.meta_path.append(StandIns())
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
        if env.controller.failure is not None:
            raise env.controller.failure
        return value


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


def _loads(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


def _field(data: bytes | None, name: str) -> Any:
    found = _loads(data)
    return found.get(name) if isinstance(found, dict) else None


def _text(data: bytes | None, name: str) -> str | None:
    found = _field(data, name)
    return found if isinstance(found, str) else None
