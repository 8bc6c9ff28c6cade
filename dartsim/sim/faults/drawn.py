"""Drawn faults of the modelled cluster, put around its parts from outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dartsim.core.errors import EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Observation, StepResult, Task

Draw = Callable[[], bool]


def chance(share: float, rng: np.random.Generator) -> Draw:
    """Return a function that is true with probability ``share``; a share of 0 draws nothing."""
    if share <= 0.0:
        return lambda: False
    random = rng.random
    return lambda: bool(random() < share)


class FaultyEnv:
    """A desktop that breaks on some actions and whose score is sometimes not to be had."""

    def __init__(self, inner: AsyncEnv, *, breaks: Draw, unscored: Draw) -> None:
        self._inner = inner
        self._breaks = breaks
        self._unscored = unscored

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set up; never fails by itself."""
        return await self._inner.reset(task, seed=seed)

    async def step(self, action: str) -> StepResult:
        """Act, or break after the time of the action."""
        result = await self._inner.step(action)
        if self._breaks():
            raise EnvBroken("the desktop broke on an action (drawn fault)")
        return result

    async def evaluate(self) -> float:
        """Score, or fail to."""
        score = await self._inner.evaluate()
        if self._unscored():
            raise ScoreUnavailable("the evaluator failed (drawn fault)")
        return score

    async def close(self) -> None:
        """Tear down."""
        await self._inner.close()


class FaultyProvider:
    """Starts desktops, some of which do not come up, and others that break later."""

    def __init__(self, inner: EnvProvider, *, start_fails: Draw, breaks: Draw, unscored: Draw) -> None:
        self._inner = inner
        self._start_fails = start_fails
        self._breaks = breaks
        self._unscored = unscored

    async def start(self, slot: int) -> AsyncEnv:
        """Start a desktop; a failed start takes the time of a good one."""
        env = await self._inner.start(slot)
        if self._start_fails():
            await env.close()
            raise EnvStartFailed(f"the desktop of slot {slot} did not become ready (drawn fault)")
        return FaultyEnv(env, breaks=self._breaks, unscored=self._unscored)
