"""Pools of processes that end with the process that made them, and the executor that runs sweeps on them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Report = Callable[[float], None]
"""Called by a run with how far it is, as often as it likes."""

PROGRESS_SECONDS = 0.2
SLOTS = 4096
"""Places for the progress of runs; more runs than that share them, which only blurs a bar."""


class SpawnPool(ProcessPoolExecutor):
    """A pool that, left by an error or by Ctrl-C, waits for nothing: what still runs is ended."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is not None:
            self.end()
        self.shutdown(cancel_futures=True)

    def end(self) -> None:
        """End what runs, and begin nothing more."""
        for process in list((self._processes or {}).values()):
            process.terminate()


def process_pool(
    processes: int, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> SpawnPool:
    """Return a pool of spawned processes, which share nothing with this one but what they are given.

    They leave Ctrl-C to this process. If it is killed they end too: a pool's own processes would wait for work for
    ever, since each holds the other end of the pipe that it reads.

    Args:
        processes: How many at a time.
        initializer: Called first in each; it can be imported.
        initargs: For it.
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
    """Runs functions in processes of this machine; a context manager that ends them.

    Args:
        processes: How many at a time.
    """

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
        """Yield the number and the result of each item, in the order in which they end.

        Args:
            function: Of a module; called with an item and with what it reports its progress to.
            items: One for each call.
            on_progress: Called with the number of an item and how far it is.
        """
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
    def report(at: float) -> None:
        _progress[number % SLOTS] = at

    return function(item, report)
