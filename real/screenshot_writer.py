"""Screenshots of real desktops, written to the run's folder by threads during their attempt.

Encoding one of 1920 × 1080 takes some 30 ms, and writing it to a disk may take as long: too long for a run's event loop
if all screenshots were written at the end of an attempt, and until then they would take gigabytes of memory. So writing
starts as soon as a screenshot exists, and nothing waits for it; the store writes any that are missing when the attempt
is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.snapshots import snapshots_of
from dartsim.core.types import Observation, StepResult, Task

SaveScreenshot = Callable[[Any], Awaitable[None]]
"""Saves a screenshot."""


class ScreenshotSavingEnv:
    """A desktop whose screenshots are saved in threads; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(self, inner: AsyncEnv, save: SaveScreenshot) -> None:
        self._inner = inner
        self._save = save
        self.snapshots = snapshots_of(inner)
        self._under_way: set[asyncio.Future[None]] = set()

    async def reset(self, task: Task, *, seed: int) -> Observation:
        shown = await self._inner.reset(task, seed=seed)
        self._begin(shown)
        return shown

    async def step(self, action: str) -> StepResult:
        result = await self._inner.step(action)
        if not result.over:  # no turn begins at the last one
            self._begin(result.observation)
        return result

    async def evaluate(self) -> float:
        score = await self._inner.evaluate()
        if self._under_way:
            await asyncio.wait(self._under_way)
        return score

    async def close(self) -> None:
        await self._inner.close()

    def _begin(self, shown: Observation) -> None:
        if shown.screenshot is None:
            return
        future = asyncio.ensure_future(self._save(shown.screenshot))
        self._under_way.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._under_way.discard(future)
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not complain


class ScreenshotSavingProvider:
    """A provider of such desktops; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(self, inner: EnvProvider, save: SaveScreenshot) -> None:
        self._inner = inner
        self._save = save

    async def start(self, slot: int) -> ScreenshotSavingEnv:
        return ScreenshotSavingEnv(await self._inner.start(slot), self._save)
