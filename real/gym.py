"""Desktops that are called in their own thread, so that none blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from typing_extensions import override

from dartsim.core.errors import EnvStartFailed
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.direct import DirectEnv

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
        closing = self._thread.submit(self._desktop.close)
        self._thread.end()
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(closing)), GRACE_SECONDS)
        except TimeoutError:
            logger.warning("an environment hangs, and its thread is left behind until this process ends")
        except Exception:
            logger.warning("an environment failed in close", exc_info=True)


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
