"""The first process of a sandbox: loads the functions once, then runs each call in a fork of its own.

It is protected from the code that it runs: as process 1 it gets no signal from inside, its memory and descriptors are
closed to other processes (``PR_SET_DUMPABLE``), and every fork closes the connection to the driver. The engine's
seccomp filter refuses system calls that no metric needs. After each call it kills every other process of the sandbox,
empties the scratch folder, and checks that nothing else has changed; if something has, it says so and ends, and the
driver starts another sandbox.

``main`` takes ``CONTROL SCRATCH FUNCTIONS``: the driver's socket, the scratch folder, ``desktop-env`` or ``own``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import child, wire

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
KILL_SECONDS = 10.0
"""Longest time until every process of a call is gone."""
MADV_COLLAPSE, HUGE_PAGE_BYTES = 25, 2**21
OTHERS = -1
"""What ``os.kill`` takes for every process but the caller and, inside, all there are."""


class Supervisor:
    """Runs calls for the driver until its connection ends."""

    def __init__(self, control: socket.socket, scratch: Path, functions: Any) -> None:
        self._control = control
        self._scratch = scratch
        self._functions = functions
        self._untouched = self._state()

    def serve(self) -> None:
        """Answer requests until the driver hangs up, or the sandbox is no longer clean."""
        self._send({"ready": self._functions.facts()}, [])
        clean = True
        while clean and (request := self._receive()) is not None:
            reply, blobs = self._run(request)
            clean = self._clean()
            self._send({**reply, "id": request["id"], "recycle": not clean}, blobs)

    def _run(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        limits = request["limits"]
        report_read, report_write = os.pipe()
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            os.close(report_read)
            child.run(self._functions, request, self._scratch, report_write)  # does not return
        os.close(report_write)
        try:
            report, status, fault = self._watch(pid, report_read, limits, began)
        finally:
            os.close(report_read)
        self._kill_everything()
        reply: dict[str, Any] = {"seconds": time.monotonic() - began}
        if fault or (fault := child.fault_of(status)):
            return {**reply, "fault": fault, "message": f"after {reply['seconds']:.1f} s"}, []
        try:
            found = child.read_report(report, request["call"])
            if "value" not in found:
                return {**reply, **found}, []
            value = found.pop("value")
            names, contents = self._new_files(request["files"], limits["reply_bytes"] - len(value))
        except ValueError as error:
            return {**reply, "fault": "reply", "message": str(error)}, []
        return {**reply, **found, "files": names}, [*contents, value]

    def _watch(self, pid: int, report: int, limits: dict[str, Any], began: float) -> tuple[bytes, int, str | None]:
        """Wait until the child ends; return its report, its wait status, and the limit that it broke, if any."""
        data = bytearray()
        deadline = began + limits["seconds"]
        watched = os.pidfd_open(pid)
        os.set_blocking(report, False)
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready, _, _ = select.select([report, watched, self._control.fileno()], [], [], left)
                if self._control.fileno() in ready:  # the driver asks for one thing at a time, so it has hung up
                    self._kill_everything()
                    raise SystemExit(0)
                open_end = _read_available(report, data, limits["reply_bytes"] + 1)
                if len(data) > limits["reply_bytes"]:
                    return b"", 0, "reply"
                if watched in ready:
                    return bytes(data), os.waitpid(pid, 0)[1], None
                if not open_end:
                    select.select([watched], [], [], max(deadline - time.monotonic(), 0.0))
            return b"", 0, "timeout"
        finally:
            os.close(watched)

    def _kill_everything(self) -> None:
        """End every process of the sandbox but this one."""
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(OTHERS, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            except ChildProcessError:
                return
            time.sleep(0.001)
        raise SystemExit("processes of a call outlived SIGKILL")

    def _clean(self) -> bool:
        """Empty the scratch folder; return whether that worked and nothing else has changed."""
        try:
            empty(self._scratch)
        except OSError:
            return False
        return self._state() == self._untouched and not _ipc_objects()

    def _state(self) -> object:
        """Return what a call could change of this process and of the scratch folder itself."""
        folder = self._scratch.stat()
        return _own_state(), folder.st_mode, folder.st_uid, folder.st_gid, os.listxattr(self._scratch)

    def _new_files(self, known: list[str], room: int) -> tuple[list[str], list[bytes]]:
        """Return the files that a getter has written: their names and their bytes."""
        root = self._scratch / "files"
        names, contents = [], []
        for path in _regular_files(root):
            name = str(path.relative_to(root))
            if name in known:
                continue
            room -= path.stat().st_size
            if room < 0:
                raise ValueError("the getter's files are larger than a reply may be")
            names.append(name)
            contents.append(path.read_bytes())
        return names, contents

    def _receive(self) -> dict[str, Any] | None:
        """Return the next request, its blobs written to the scratch folder; None if the driver has hung up."""
        size = self._read(4)
        if not size:
            return None
        request: dict[str, Any] = json.loads(self._read(int.from_bytes(size, "big")))
        names = [f"files/{wire.check_file_name(name)}" for name in request["files"]]
        names += [f"blobs/{number}" for number in range(len(request["blobs"]) - len(names))]
        try:
            for name, length in zip(names, request["blobs"], strict=True):
                path = self._scratch / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    self._copy(length, file)
        except OSError as error:  # the rest of the request is lost with the connection
            self._send({"id": request["id"], "fault": "disk", "message": str(error), "recycle": True}, [])
            raise SystemExit(0) from error
        return request

    def _copy(self, length: int, file: Any) -> None:
        while length:
            chunk = self._control.recv(min(length, 2**20))
            if not chunk:
                raise SystemExit(0)
            file.write(chunk)
            length -= len(chunk)

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            chunk = self._control.recv(length - len(data))
            if not chunk:
                return b""
            data += chunk
        return bytes(data)

    def _send(self, header: dict[str, Any], blobs: list[bytes]) -> None:
        self._control.sendall(wire.pack(header, [len(blob) for blob in blobs]))
        for blob in blobs:
            self._control.sendall(blob)


def _read_available(descriptor: int, data: bytearray, most: int) -> bool:
    """Append what can be read at once, ``most`` bytes in all; return whether more may come."""
    while len(data) < most:
        try:
            chunk = os.read(descriptor, min(2**16, most - len(data)))
        except BlockingIOError:
            return True
        if not chunk:
            return False
        data += chunk
    return True


def empty(folder: Path) -> None:
    """Remove all that is in a folder, however deeply it is nested and whatever its modes are.

    Folders are moved up before they are removed, so that no path grows and nothing recurses.

    Raises:
        OSError: If something cannot be removed.
    """
    number = 0
    while paths := list(folder.iterdir()):
        for path in paths:
            if path.is_symlink() or not path.is_dir():
                path.unlink()
                continue
            path.chmod(0o700)
            for inner in os.scandir(path):
                if inner.is_dir(follow_symlinks=False):
                    Path(inner.path).chmod(0o700)  # a folder that moves has to be writable
                number += 1
                Path(inner.path).rename(folder / f".{number}-{time.monotonic_ns()}")
            path.rmdir()


def _regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and its folders, by name; links are not followed."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _own_state() -> object:
    """Return what another process of the same user could change of this one."""
    kinds = [getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]
    limits = [resource.getrlimit(kind) for kind in (*kinds, child.RLIMIT_MSGQUEUE)]
    return limits, os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)


def _ipc_objects() -> bool:
    """Whether System V objects, which outlive processes, are there."""
    for kind in ("shm", "msg", "sem"):
        try:
            if len(Path("/proc/sysvipc", kind).read_text().splitlines()) > 1:
                return True
        except OSError:
            continue  # a kernel without them
    return False


def use_huge_pages(libc: ctypes.CDLL) -> None:
    """Move what is loaded into huge pages, where the kernel has them: a fork and its end cost by the page."""
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, mode, _, _, inode, *_ = line.split()
        if not mode.startswith("rw-p") or inode != "0":
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        for page in range(-(-begin // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end - HUGE_PAGE_BYTES + 1, HUGE_PAGE_BYTES):
            libc.madvise(page, HUGE_PAGE_BYTES, MADV_COLLAPSE)  # one that it refuses stays as it is


def main() -> None:
    """Connect to the driver and serve it.

    Raises:
        SystemExit: If it is not process 1 of a container, where it may kill whatever else runs, under a filter.
    """
    if os.getpid() != 1 or "\nSeccomp:\t2\n" not in Path("/proc/self/status").read_text():
        raise SystemExit("a supervisor has to be process 1 of a container whose engine filters system calls")
    control, scratch, kind = sys.argv[1:4]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a handler would let a process inside reach process 1
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl {option}")
    connection = socket.socket(socket.AF_UNIX)
    os.chdir(Path(control).parent)  # a socket's path has 107 characters at most
    try:
        connection.connect(Path(control).name)
    except FileNotFoundError:
        raise SystemExit(
            "the engine sees other files than this machine, as one in a snap or a virtual machine does: set TMPDIR to "
            "a folder that both see"
        ) from None
    os.chdir("/")
    empty(Path(scratch))
    functions = child.load(kind)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page of what is loaded
    use_huge_pages(libc)
    Supervisor(connection, Path(scratch), functions).serve()
