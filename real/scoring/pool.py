"""``SandboxPool``: as many sandboxes as cores, lent to one call at a time.

If none is free, calls wait in order without a limit: waiting is not a fault, and the attempt's deadline is paused
(``dartsim.core.waiting``). A sandbox that broke, or has run its share of calls, is replaced. A call that failed with
its sandbox is retried once in another.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import TypeVar

from dartsim.core.waiting import paused_deadline
from dartsim.real.scoring.sandbox import ScoreFault, ScorerFacts, SupervisedSandbox

logger = logging.getLogger(__name__)

T = TypeVar("T")

CALLS_PER_SANDBOX = 500
TRIES = 2


class SandboxPool:
    """Lends sandboxes; open it with ``async with``.

    Args:
        open_sandbox: Starts a sandbox; raises ``ScoreFault`` if it cannot.
        size: How many; by default one per core.
        calls: After so many a sandbox is replaced.
    """

    def __init__(
        self,
        open_sandbox: Callable[[], Awaitable[SupervisedSandbox]],
        *,
        size: int | None = None,
        calls: int = CALLS_PER_SANDBOX,
    ) -> None:
        self._open_sandbox = open_sandbox
        self.size = size or self.default_size()
        self.waiting = 0
        self.running = 0
        self.started = 0
        self._max_calls = calls
        self._places = asyncio.Semaphore(self.size)
        self._idle: list[SupervisedSandbox] = []
        self._num_calls: dict[SupervisedSandbox, int] = {}
        self._replacing: set[asyncio.Task[None]] = set()
        self._starting: set[asyncio.Task[SupervisedSandbox]] = set()
        self._facts: ScorerFacts | None = None
        self._closed = False

    @staticmethod
    def default_size() -> int:
        return len(os.sched_getaffinity(0))

    async def facts(self) -> ScorerFacts:
        """Return what the sandboxes can do, starting the first if need be.

        Raises:
            ScoreFault: If none can be started.
        """
        if self._facts is None:
            async with self._lend():
                pass
        assert self._facts is not None
        return self._facts

    async def run(self, call: Callable[[SupervisedSandbox], Awaitable[T]]) -> T:
        """Run a call in a sandbox once one is free, and again if it failed with its sandbox.

        Raises:
            ScoreFault: If it failed, with the cause of the last try.
        """
        for number in range(1, TRIES + 1):
            try:
                async with self._lend() as sandbox:
                    return await call(sandbox)
            except ScoreFault as fault:
                if number == TRIES or not fault.may_pass:
                    raise
                logger.warning("a score is tried again: %s", fault)
        raise AssertionError("unreachable: the last try returns or raises")

    async def warm(self) -> None:
        """Start every sandbox, so that no score waits for that.

        Raises:
            ScoreFault: If one cannot be started.
        """
        async with AsyncExitStack() as stack:
            await asyncio.gather(*(stack.enter_async_context(self._lend()) for _ in range(self.size)))

    async def close(self) -> None:
        self._closed = True
        for task in self._starting:
            task.cancel()
        if self._replacing:
            await asyncio.wait(self._replacing)
        sandboxes, self._idle = list(self._num_calls), []
        self._num_calls.clear()
        await asyncio.gather(*map(_close_quietly, sandboxes))

    async def __aenter__(self) -> SandboxPool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[SupervisedSandbox]:
        self.waiting += 1
        try:
            with paused_deadline() if self._places.locked() else nullcontext():
                await self._places.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        sandbox: SupervisedSandbox | None = None
        try:
            sandbox = self._idle.pop() if self._idle else await self._start()
            yield sandbox
        except asyncio.CancelledError:
            if sandbox is not None:
                sandbox.broken = True  # its call may still run
            raise
        finally:
            self.running -= 1
            self._give_back(sandbox)

    def _give_back(self, sandbox: SupervisedSandbox | None) -> None:
        """Free a place, once the sandbox that was in it is replaced if need be."""
        if sandbox not in self._num_calls:  # it did not start, or the pool was closed meanwhile
            self._places.release()
            return
        self._num_calls[sandbox] += 1
        if not sandbox.broken and self._num_calls[sandbox] < self._max_calls:
            self._idle.append(sandbox)
            self._places.release()
            return
        del self._num_calls[sandbox]
        task = asyncio.create_task(self._replace(sandbox), name="replace a sandbox")
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, sandbox: SupervisedSandbox) -> None:
        try:
            await _close_quietly(sandbox)
            if not self._closed:
                starting = asyncio.create_task(self._start(), name="start a sandbox")
                self._starting.add(starting)
                starting.add_done_callback(self._starting.discard)
                self._idle.append(await starting)
        except ScoreFault as fault:
            logger.warning("a sandbox could not be replaced, the next score tries again: %s", fault)
        finally:
            self._places.release()

    async def _start(self) -> SupervisedSandbox:
        sandbox = await self._open_sandbox()
        if self._closed:
            await _close_quietly(sandbox)
            raise ScoreFault("the pool of sandboxes was closed", cause="sandbox_died")
        self.started += 1
        self._num_calls[sandbox] = 0
        self._facts = sandbox.facts
        return sandbox


async def _close_quietly(sandbox: SupervisedSandbox) -> None:
    """Close a sandbox that is no longer wanted; the reaper removes what the engine keeps."""
    with suppress(Exception):
        await sandbox.close()
