"""One call of a metric or a getter, in a process of its own, and the report that it gives of it."""

from __future__ import annotations

import errno
import inspect
import json
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any

from . import wire

RLIMIT_MSGQUEUE = 12
"""Python does not name it."""
MESSAGE_BYTES = 2_000
"""Of an error's text."""
SCORE, VALUE, ERROR = b"S", b"V", b"E"
"""First byte of a report: a metric's score, a getter's value, or what went wrong."""
CAUSES = ("failed", "unavailable", "file_not_found", "desktop", "memory", "disk", "task")
"""What can go wrong in a call, by number in a report."""


class OfTask(dict[str, Any]):
    """A part of a task file: what it lacks is the task's fault, whatever an agent has done."""

    def __missing__(self, key: str) -> Any:
        raise TaskLacks(key)


class TaskLacks(KeyError):
    """The task file lacks something."""


class TaskMisfits(TypeError):
    """The task file gives a metric what it does not take."""


def of_task(value: Any) -> Any:
    """Return a value with every dictionary in it as ``OfTask``."""
    if isinstance(value, dict):
        return OfTask((key, of_task(item)) for key, item in value.items())
    return [of_task(item) for item in value] if isinstance(value, list) else value


def load(kind: str) -> Any:
    """Return the functions of a kind: ``desktop-env``, or ``own``."""
    if kind == "own":
        from .own_functions import OwnFunctions

        return OwnFunctions()
    from .desktop_env_functions import DesktopEnvFunctions

    return DesktopEnvFunctions()


def run(functions: Any, request: dict[str, Any], scratch: Path, report: int) -> None:
    """Carry out a request in this process, a fresh fork, report, and end it."""
    status = 1
    try:
        _confine(request["limits"], scratch, report)
        try:
            data = _call(functions, request, scratch)
        except BaseException as error:  # whatever a metric raises is told
            data = _error(functions, error)
        while data:
            data = data[os.write(report, data) :]
        status = 0
    finally:
        os._exit(status)


def _confine(limits: dict[str, Any], scratch: Path, report: int) -> None:
    """Close what a call has no business with, and set its limits."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, report)
    os.closerange(report + 1, 2**16)
    for folder in ("files", "blobs", "tmp"):
        (scratch / folder).mkdir(exist_ok=True)
    os.chdir(scratch / "files")
    os.environ.update(HOME=str(scratch / "tmp"), TMPDIR=str(scratch / "tmp"))
    # The first limit ends the call with a signal of its own, by which the cause is known.
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_seconds"], limits["cpu_seconds"] + 1))
    for kind, value in (
        (resource.RLIMIT_AS, _address_space() + limits["memory_mib"] * 2**20),
        (resource.RLIMIT_FSIZE, limits["scratch_mib"] * 2**20),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write that fails is told like a full disk


def _address_space() -> int:
    """Return how much address space this process has, bytes: what was loaded before the call."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _call(functions: Any, request: dict[str, Any], scratch: Path) -> bytes:
    files = scratch / "files"

    def file_path(name: str) -> str:
        return str(files / wire.check_file_name(name))

    def blob(number: int) -> bytes:
        return (scratch / "blobs" / str(number)).read_bytes()

    if request["call"] == "metric":
        arguments = wire.decode(request["arguments"], file_path, blob)
        arguments[1:] = map(of_task, arguments[1:])  # the first is the result
        options = of_task(wire.decode(request["options"], file_path, blob))
        function = functions.metric(request["name"])
        try:
            inspect.signature(function).bind(*arguments, **options)
        except TypeError as error:
            raise TaskMisfits(f"{request['name']}() {error}") from None
        return SCORE + struct.pack("<d", float(function(*arguments, **options)))

    def path_name(text: str) -> str | None:
        try:
            path = Path(text)
            return str(path.relative_to(files)) if path.is_file() else None
        except (OSError, ValueError):
            return None

    value = functions.get(request["name"], of_task(request["config"]), {**request["desktop"], "cache_dir": str(files)})
    lacks = value is None, isinstance(value, list) and None in value
    data = json.dumps(wire.encode(value, path_name)).encode("utf-8", "surrogatepass")
    return VALUE + bytes(map(int, lacks)) + data


def _error(functions: Any, error: BaseException) -> bytes:
    if isinstance(error, MemoryError):
        cause = "memory"
    elif isinstance(error, FileNotFoundError):
        cause = "file_not_found"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        cause = "disk"
    elif isinstance(error, (ModuleNotFoundError, functions.not_offered)):
        cause = "unavailable"
    elif isinstance(error, functions.desktop_error):
        cause = "desktop"
    else:
        cause = "task" if isinstance(error, (TaskLacks, TaskMisfits)) else "failed"
    kind = type(error).__base__ if cause == "task" else type(error)
    text = f"{kind and kind.__name__}: {error}"[:MESSAGE_BYTES].encode("utf-8", "replace")[:MESSAGE_BYTES]
    return ERROR + bytes([CAUSES.index(cause)]) + text


def read_report(report: bytes, call: str) -> dict[str, Any]:
    """Return what a child has reported. It may have been written by anybody inside, so it is taken apart strictly.

    Raises:
        ValueError: If it is no report.
    """
    kind, body = report[:1], report[1:]
    if call == "metric" and kind == SCORE and len(body) == 8:
        return {"score": struct.unpack("<d", body)[0]}
    if kind == ERROR and 1 <= len(body) <= MESSAGE_BYTES + 1 and body[0] < len(CAUSES):
        return {"error": CAUSES[body[0]], "message": body[1:].decode("utf-8", "replace")}
    if call == "getter" and kind == VALUE and len(body) > 2 and set(body[:2]) <= {0, 1}:
        return {"missing": bool(body[0]), "some_missing": bool(body[1]), "value": body[2:]}
    raise ValueError(f"the {call} ended without a report, or with one that is none ({len(report)} bytes)")


def fault_of(status: int) -> str | None:
    """Return which limit a child broke, by its wait status; None if it ended by itself."""
    if not os.WIFSIGNALED(status):
        return None if status == 0 else "crashed"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return "cpu"
    return "killed" if number == signal.SIGKILL else "crashed"
