"""Processes of this machine: their identity, pools that end with their parent, and sweeps that run in them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Report = Callable[[float], None]
"""Called by a run with its progress in [0, 1], as often as it likes."""

PROGRESS_SECONDS = 0.2
SLOTS = 4096
"""Places for the progress of runs; more runs than that share them, which only blurs a bar."""

PROC = Path("/proc")

_PR_SET_PDEATHSIG = 1
_M_ARENA_MAX = -8
_GIVEN: deque[int] = deque(maxlen=256)
"""Ports that ``free_port`` returned last."""
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: a forked child may do very little


def share_heap() -> None:
    """Let all threads of this process allocate from one heap, as far as they have none yet (glibc only).

    Every thread checks screenshots of megabytes. By default each has a heap of its own, and these fill with holes: of
    1.2 GB of the driver's heaps, 0.8 were free after 15 minutes, and they grew on.
    """
    with suppress(AttributeError):
        _LIBC.mallopt(_M_ARENA_MAX, 1)


def process_scope(proc: Path = PROC) -> str:
    """Return this boot and pid namespace, within which a pid names one process; empty if the system has none."""
    boot, namespace = boot_id(proc), pid_namespace(proc)
    return f"{boot}:{namespace}" if boot and namespace else ""


def boot_id(proc: Path = PROC) -> str:
    """Return the identity of the machine's present boot; empty if the system has none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def pid_namespace(proc: Path = PROC) -> str:
    """Return the number of this process's pid namespace; empty if the system has none."""
    try:
        return (proc / "self/ns/pid").readlink().name.partition("[")[2].rstrip("]")
    except OSError:
        return ""


def process_start(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks after boot; None if the system does not say."""
    stat = _stat(pid, proc)
    return None if stat is None else stat[1]


def process_lives(pid: int, start: int, proc: Path = PROC) -> bool:
    """Return whether the process with this pid and start time runs; a zombie does not."""
    stat = _stat(pid, proc)
    if stat is not None:
        state, started = stat
        return started == start and state not in "ZX"
    # Where processes of other users are hidden, a signal still tells whether there is one.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat(pid: int, proc: Path) -> tuple[str, int] | None:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain anything, even parentheses; fields 3 and 22 are state and start (proc(5)).
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def end_with(parent: int, signal_number: int) -> None:
    """In a forked child: have the kernel send it a signal when the parent's thread that forked it ends.

    If the parent (a pid) has ended already, the child ends at once.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(128 + signal_number)  # not by the signal itself, which the parent may handle


def free_port(host: str) -> int:
    """Return a free port that no other server of this process was just given.

    The kernel may return a port twice before anyone listens on it; the second server would be mistaken for the first.
    """
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port not in _GIVEN:
            _GIVEN.append(port)
            return port


class SpawnPool(ProcessPoolExecutor):
    """A pool that ends its running calls immediately when left by an error or Ctrl-C."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is not None:
            self.end()
        self.shutdown(cancel_futures=True)

    def end(self) -> None:
        """End the running calls and start no more."""
        for process in list((self._processes or {}).values()):
            process.terminate()


def process_pool(
    processes: int, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> SpawnPool:
    """Return a pool of spawned processes, which share only their arguments with this one.

    They ignore Ctrl-C and end when this process does. (Those of a plain pool would then wait forever: each holds the
    other end of the pipe it reads.)
    """
    context = multiprocessing.get_context("spawn")
    return SpawnPool(processes, mp_context=context, initializer=_begin, initargs=(initializer, initargs))


def _begin(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a process of a pool"
    parent.join()
    os._exit(1)


class LocalProcesses:
    """Runs the calls of a sweep in processes of this machine; a context manager that ends them."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._progress = multiprocessing.get_context("spawn").Array("d", SLOTS, lock=False)
        self._pool: SpawnPool | None = None

    def __enter__(self) -> Self:
        self._pool = process_pool(self._processes, _share_progress, (self._progress,))
        return self

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        assert self._pool is not None, "used as a context manager"
        self._progress[:] = [0.0] * SLOTS
        numbers: dict[Future[R], int] = {self._pool.submit(_call, function, x, n): n for n, x in enumerate(items)}
        left = set(numbers)
        while left:
            done, left = wait(left, PROGRESS_SECONDS if on_progress else None, FIRST_COMPLETED)
            for future in sorted(done, key=numbers.__getitem__):
                yield numbers[future], future.result()
            if on_progress is not None:
                for future in left:
                    on_progress(numbers[future], self._progress[numbers[future] % SLOTS])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._pool is not None
        self._pool.__exit__(kind, error, where)
        self._pool = None


_progress: Any = None
"""In a process of a pool: the progress of every run, shared with the parent."""


def _share_progress(progress: Any) -> None:
    global _progress  # a process of a pool has one parent to report to
    _progress = progress


def _call(function: Callable[[T, Report], R], item: T, number: int) -> R:
    def report(progress: float) -> None:
        _progress[number % SLOTS] = progress

    return function(item, report)
