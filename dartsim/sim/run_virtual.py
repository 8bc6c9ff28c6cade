"""Run a coroutine in virtual time, from start to a clean end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from dartsim.core.errors import DartsimError
from dartsim.sim.limits import SimLimits
from dartsim.sim.loop import SimLoop
from dartsim.sim.loop_services import ExecutorCost
from dartsim.sim.perturb import Perturbation, PerturbedLoop
from dartsim.sim.tasks import pending_tasks

T = TypeVar("T")


class SimReport(NamedTuple):
    """Identity and size of a simulation.

    Attributes:
        seed: Its seed.
        event_hash: 16 hexadecimal digits; equal for equal runs, in any process of one Python minor version.
        num_events: Callbacks and SimPy events.
        virtual_seconds: Virtual time when it ended.
    """

    seed: int
    event_hash: str
    num_events: int
    virtual_seconds: float


def run_virtual(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    start: float = 0.0,
    perturb: Perturbation | None = None,
    until: float | None = None,
    max_events: int | None = None,
    stall_seconds: float | None = None,
    executor_cost: ExecutorCost | None = None,
    on_advance: Callable[[float], None] | None = None,
    every_seconds: float = 60.0,
    on_end: Callable[[SimReport], None] | None = None,
) -> T:
    """Run a coroutine in virtual time and return its result: ``asyncio.run`` without waiting.

    It is ordinary asyncio (``sleep``, ``Queue``, ``timeout``, ``TaskGroup``); time jumps to the next timer, and
    ``get_running_loop().time()`` is the time in seconds. Sockets, threads and signals are refused.

    When it ends, for whatever reason, the tasks that are left are cancelled and awaited, as by ``asyncio.run``. The
    first Ctrl-C cancels the main task, which may finish cleanly; the second stops it.

    Args:
        main: The coroutine, such as ``main()``.
        seed: Seed of the streams of ``loop.rng(name)`` and of the perturbation.
        start: Initial virtual time, seconds.
        perturb: How to disturb the order between hosts and the latencies; None leaves both alone.
        until: Virtual seconds after which the run is aborted.
        max_events: Callbacks and SimPy events after which it is aborted; catches polling loops.
        stall_seconds: Virtual seconds without ``loop.progress()`` after which it is aborted.
        executor_cost: Virtual seconds that ``fn(*args)`` takes on a thread, of ``asyncio.to_thread`` and
            ``run_in_executor``, which run it inline; None is 0 seconds.
        on_advance: Called with the virtual time, before the first event of an instant more than ``every_seconds`` after
            the last call. It must not affect the simulation.
        every_seconds: Virtual seconds between two calls of ``on_advance``.
        on_end: Called with the report when the run has ended, successfully or not.

    Raises:
        Stalled: If tasks wait and no event is left, or if ``stall_seconds`` passed without progress.
        LimitReached: If ``until`` or ``max_events`` was reached before the main task ended.
        Forbidden: If the program used something that exists only in real time.
        KeyboardInterrupt: After Ctrl-C, unless the main task finished anyway.
    """
    if not asyncio.iscoroutine(main):
        raise TypeError(f"run_virtual wants a coroutine, got {main!r}; if it is an async function, call it")
    limits = SimLimits(
        until=until,
        max_events=max_events,
        stall_seconds=stall_seconds,
        on_advance=on_advance,
        every_seconds=every_seconds,
    )
    if perturb is None:
        loop = SimLoop(seed=seed, limits=limits, executor_cost=executor_cost, strict=True)
    else:
        loop = PerturbedLoop(perturb, seed=seed, limits=limits, executor_cost=executor_cost, strict=True)
    loop.env._now = float(start)
    with _beside_running_loop():
        return _run(loop, main, on_end)


def run_virtual_reported(main: Coroutine[Any, Any, T], **options: Any) -> tuple[T, SimReport]:
    """Do the same as ``run_virtual``, with the same options, and return the report as well."""
    reports: list[SimReport] = []
    result = run_virtual(main, on_end=reports.append, **options)
    return result, reports[0]


def _run(loop: SimLoop, coroutine: Coroutine[Any, Any, T], on_end: Callable[[SimReport], None] | None) -> T:
    failed = True
    main = loop.create_task(coroutine, name="main")
    try:
        with _cancelled_by_ctrl_c(main) as interrupted:
            try:
                result: T = loop.run_until_complete(main)
            except asyncio.CancelledError:
                if interrupted:
                    raise KeyboardInterrupt from None
                raise
        failed = False
    finally:
        try:
            _clean_up(loop, quiet=failed)
            if on_end is not None:
                on_end(SimReport(loop.seed, loop.event_hash, loop.num_events, loop.time()))
        finally:
            loop.close()
    if loop.unhandled:
        raise loop.unhandled_error()
    return result


@contextmanager
def _beside_running_loop() -> Iterator[None]:
    """Suspend this thread's real loop, such as a notebook's, for the block; asyncio refuses a second running loop."""
    outer = asyncio._get_running_loop()
    if outer is None or isinstance(outer, SimLoop):
        yield
        return
    task: Any = asyncio.current_task(outer)
    if task is not None:
        asyncio.tasks._leave_task(outer, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
        if task is not None:
            asyncio.tasks._enter_task(outer, task)


def _clean_up(loop: SimLoop, *, quiet: bool) -> None:
    """Cancel the remaining tasks and wait for them."""
    loop.begin_cleanup()
    try:
        tasks = pending_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for task in tasks:
            if not task.cancelled() and (exc := task.exception()) is not None:
                message = f"{task.get_name()} failed while it was cancelled at the end of the simulation"
                loop.call_exception_handler({"message": message, "exception": exc, "task": task})
        loop.run_until_complete(loop.shutdown_asyncgens())
    except DartsimError:
        for task in pending_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if not quiet:
            raise


@contextmanager
def _cancelled_by_ctrl_c(main: asyncio.Task[Any]) -> Iterator[list[int]]:
    """Let the first Ctrl-C cancel ``main``, as ``asyncio.run`` does; yield the list of signals so far.

    Does nothing in another thread or if the signal has another handler.
    """
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1 and not main.done():
            main.cancel()
            return
        raise KeyboardInterrupt

    installed = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if installed:
        try:
            signal.signal(signal.SIGINT, interrupt)
        except ValueError:  # not the main thread
            installed = False
    try:
        yield received
    finally:
        if installed and signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
