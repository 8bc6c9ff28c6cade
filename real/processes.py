"""Pools of processes that end with the process that made them, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from threading import Thread
from types import TracebackType
from typing import Any


class Pool(ProcessPoolExecutor):
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
) -> Pool:
    """Return a pool of spawned processes, which share nothing with this one but what they are given.

    They leave Ctrl-C to this process. If it is killed they end too: a pool's own processes would wait for work for
    ever, since each holds the other end of the pipe that it reads.

    Args:
        processes: How many at a time.
        initializer: Called first in each; it can be imported.
        initargs: For it.
    """
    context = multiprocessing.get_context("spawn")
    return Pool(processes, mp_context=context, initializer=_begin, initargs=(initializer, initargs))


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
