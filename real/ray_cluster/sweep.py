"""Runs of a sweep as Ray tasks: as many at a time as the cluster has CPUs, in any order, each with its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from dartsim.real.ray_cluster.session import connected

T = TypeVar("T")
R = TypeVar("R")

Tell = Callable[[float], None]
"""Called by a run with how far it is, as often as it likes."""

_TELL_SECONDS = 0.5
_LOOK_SECONDS = 0.2


class Board:
    """In an actor: how far each run is."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}

    def tell(self, number: int, at: float) -> None:
        """Note how far a run is."""
        self._at[number] = at

    def read(self) -> dict[int, float]:
        """Return how far the runs are, by number."""
        return self._at


def map_runs(
    function: Callable[[T, Tell], R],
    items: Sequence[T],
    *,
    address: str,
    cpus: float = 1.0,
    tries: int = 3,
    on_progress: Callable[[int, float], None] | None = None,
    on_done: Callable[[int, R], None] | None = None,
) -> list[R]:
    """Call a function with every item, spread over a cluster, and return the results in the items' order.

    Args:
        function: Called with an item and with what it tells its progress; it must be importable on every node, and
            give the same result wherever it runs. What it leaves on a disk stays on the node it ran on.
        items: One for each call.
        address: The cluster, as ``ray.address``.
        cpus: CPUs that each call takes.
        tries: How often an item is tried whose process or node ends under it.
        on_progress: Told the number of an item and how far it is.
        on_done: Told the number of an item and its result, as soon as it is there.

    Raises:
        ConfigError: If there is no such cluster.
        Exception: What the function raised first; the other calls are cancelled.
    """
    with connected(address, cpus=cpus):
        return _Sweep(function, items, cpus, tries).run(on_progress, on_done)


class _Sweep:
    def __init__(self, function: Callable[[Any, Tell], Any], items: Sequence[Any], cpus: float, tries: int) -> None:
        import ray

        self._board: Any = ray.remote(Board).options(num_cpus=0, max_restarts=-1).remote()
        task: Any = ray.remote(_call).options(num_cpus=cpus, max_retries=tries - 1)
        self._references: list[Any] = [task.remote(function, item, n, self._board) for n, item in enumerate(items)]

    def run(
        self, on_progress: Callable[[int, float], None] | None, on_done: Callable[[int, Any], None] | None
    ) -> list[Any]:
        import ray

        numbers = {reference: number for number, reference in enumerate(self._references)}
        left = list(self._references)
        results: list[Any] = [None] * len(left)
        try:
            while left:
                done, left = ray.wait(left, num_returns=len(left), timeout=_LOOK_SECONDS)
                for reference in done:
                    number = numbers[reference]
                    results[number] = _value(reference)
                    if on_done is not None:
                        on_done(number, results[number])
                if on_progress is not None:
                    for number, at in self._progress().items():
                        on_progress(number, at)
        except BaseException:
            for reference in left:
                ray.cancel(reference, force=True)
            raise
        finally:
            ray.kill(self._board)
        return results

    def _progress(self) -> dict[int, float]:
        """Return what is known; nothing while the board is started again, for its node ended."""
        import ray

        with suppress(ray.exceptions.RayActorError):
            found: dict[int, float] = ray.get(self._board.read.remote())
            return found
        return {}


def _call(function: Callable[[Any, Tell], Any], item: Any, number: int, board: Any) -> Any:
    """Call the function in a task."""
    last = 0.0

    def tell(at: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _TELL_SECONDS:
            last = now
            board.tell.remote(number, at)

    return function(item, tell)


def _value(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise
