"""Desktops that are called in their own thread or process, so that none blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from typing_extensions import override

from dartsim.core.errors import EnvBroken, EnvStartFailed
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.direct import DirectEnv
from dartsim.real.processes import process_pool

logger = logging.getLogger(__name__)

T = TypeVar("T")


GRACE_SECONDS = 5.0
"""Longest wait for an environment's thread when it is closed; a call that takes longer hangs."""


class DesktopThread:
    """A thread that makes calls one after the other; unlike an executor's, one that hangs lets the process exit."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        self._calls.put((future, partial(function, *arguments)))
        return future

    def end(self) -> None:
        """End after the calls that were submitted."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)


class ThreadedEnv(DirectEnv):
    """One running desktop, all of whose calls are made in one thread."""

    def __init__(self, desktop: Any, thread: DesktopThread) -> None:
        super().__init__(desktop)
        self._thread = thread
        self._closed = False

    @override
    async def reset(self, task: Task, *, seed: int) -> Observation:
        return await self._called(self.reset_now, task, seed)

    @override
    async def step(self, action: str) -> StepResult:
        return await self._called(self.step_now, action)

    @override
    async def evaluate(self) -> float:
        return await self._called(self.evaluate_now)

    async def _called(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.wrap_future(self._thread.submit(call, *arguments))

    @override
    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if isinstance(self._desktop, ProcessDesktop):
            self._desktop.close()  # not in its thread, which may be stuck in a call that hangs
        else:
            closing = self._thread.submit(self._desktop.close)
            try:
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(closing)), GRACE_SECONDS)
            except TimeoutError:
                logger.warning(
                    "an environment hangs and its thread is left behind until this process ends; with "
                    'gym.run_in = "processes" it would be ended'
                )
            except Exception:
                logger.warning("an environment failed in close", exc_info=True)
        self._thread.end()


class ThreadedProvider(EnvProvider):
    """Starts desktops, each in a thread of its own.

    Args:
        make: Makes one; called in its thread.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @override
    async def start(self, slot: int) -> ThreadedEnv:
        thread = DesktopThread(f"desktop-{slot}")
        making = thread.submit(self._make)
        try:
            return ThreadedEnv(await asyncio.wrap_future(making), thread)
        except BaseException as error:
            thread.submit(_discard, making)
            thread.end()
            if isinstance(error, Exception):
                raise EnvStartFailed(f"the environment of slot {slot} could not be made: {error}") from error
            raise


def _discard(making: Future[Any]) -> None:
    """Close a desktop whose start was canceled."""
    if not making.cancelled() and making.exception() is None:
        making.result().close()


class ProcessDesktop:
    """A desktop in its own process; ``close`` ends the process, even if a call hangs.

    Args:
        make: Makes the desktop; called in the process, so that it is picklable.

    Raises:
        EnvBroken: By every call, if the process ended.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._pool = process_pool(1)
        self._shown = Observation(None, "")
        try:
            self._call(_make, make)
        except BaseException:
            self.close()
            raise

    def begin(self, task: Task, seed: int) -> None:
        self._shown = self._call(_begin, task, seed)

    def act(self, action: str) -> bool:
        over, self._shown = self._call(_act, action)
        return over

    def observe(self) -> Observation:
        return self._shown

    def evaluate(self) -> float:
        return self._call(_evaluate)

    def close(self) -> None:
        self._pool.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return self._pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            raise EnvBroken("the process of the environment ended") from None


_desktop: Any = None
"""In the process of a desktop: the desktop."""


def _make(make: Callable[[], Any]) -> None:
    global _desktop  # a process has one
    _desktop = make()


def _begin(task: Task, seed: int) -> Observation:
    _desktop.begin(task, seed)
    shown: Observation = _desktop.observe()
    return shown


def _act(action: str) -> tuple[bool, Observation]:
    return bool(_desktop.act(action)), _desktop.observe()


def _evaluate() -> float:
    return float(_desktop.evaluate())
