"""The runs of a sweep as Ray tasks: as many at a time as the cluster has CPUs, with their progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from dartsim.real.processes import PROGRESS_SECONDS, Report
from dartsim.real.ray_cluster.session import connected

T = TypeVar("T")
R = TypeVar("R")

_REPORT_SECONDS = 0.5


class Board:
    """In an actor: the progress of each run."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}

    def report(self, number: int, at: float) -> None:
        self._at[number] = at

    def read(self) -> dict[int, float]:
        return self._at


class RayCluster:
    """Runs functions on a Ray cluster, as many at a time as it has CPUs."""

    def __init__(self, address: str, *, cpus: float = 1.0, max_tries: int = 3) -> None:
        self._address = address
        self._cpus = cpus
        self._max_tries = max_tries

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        """Yield the number and the result of each item, in the order in which they end.

        Raises:
            ConfigError: If there is no such cluster.
            Exception: The first error of the function; the other calls are canceled.
        """
        with connected(self._address, cpus=self._cpus):
            import ray

            board: Any = ray.remote(Board).options(num_cpus=0, max_restarts=-1).remote()
            task: Any = ray.remote(_call).options(num_cpus=self._cpus, max_retries=self._max_tries - 1)
            numbers = {task.remote(function, item, number, board): number for number, item in enumerate(items)}
            left = list(numbers)
            try:
                while left:
                    done, left = ray.wait(left, num_returns=len(left), timeout=PROGRESS_SECONDS)
                    for reference in done:
                        yield numbers[reference], _value(reference)
                    if on_progress is not None:
                        for number, progress in _progress(board).items():
                            on_progress(number, progress)
            except BaseException:
                for reference in left:
                    ray.cancel(reference, force=True)
                raise
            finally:
                ray.kill(board)


def _progress(board: Any) -> dict[int, float]:
    """Return the progress of the runs; nothing while the board restarts because its node ended."""
    import ray

    with suppress(ray.exceptions.RayActorError):
        progress: dict[int, float] = ray.get(board.read.remote())
        return progress
    return {}


def _call(function: Callable[[Any, Report], Any], item: Any, number: int, board: Any) -> Any:
    """Call the function in a task."""
    last = 0.0

    def report(at: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_SECONDS:
            last = now
            board.report.remote(number, at)

    return function(item, report)


def _value(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise
