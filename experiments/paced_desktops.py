"""A plug-in: mock desktops whose calls take time, so that a real run is not limited by this machine's cores alone.

``backend.desktops = "paced"``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dartsim.core.ports import EnvProvider
from dartsim.core.registry import register
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.direct import DirectEnv
from dartsim.envs.mock.env import mock_desktop_maker
from dartsim.run.backends.in_process import MockDesktops

if TYPE_CHECKING:
    from dartsim.config import Config

RESET_SECONDS, STEP_SECONDS = 0.25, 0.1
SPREAD = 0.4
"""Of the logarithm of a duration."""


class PacedDesktop(DirectEnv):
    """A mock desktop whose resets and steps take a drawn time."""

    def __init__(self, desktop: Any, slot: int) -> None:
        super().__init__(desktop)
        self._random = random.Random(slot)

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._random.lognormvariate(0.0, SPREAD))

    @override
    async def reset(self, task: Task, *, seed: int) -> Observation:
        await self._pass(RESET_SECONDS)
        return self.reset_now(task, seed)

    @override
    async def step(self, action: str) -> StepResult:
        await self._pass(STEP_SECONDS)
        return self.step_now(action)


class PacedProvider:
    """Starts paced desktops."""

    def __init__(self, config: Config) -> None:
        self._make = mock_desktop_maker(config.policy)

    async def start(self, slot: int) -> PacedDesktop:
        return PacedDesktop(self._make(), slot)


@register("desktops", "paced")
class PacedDesktops(MockDesktops):
    """Mock desktops in real time, with latencies."""

    @override
    def saves_states(self, config: Config) -> bool:
        return False

    @override
    @asynccontextmanager
    async def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AsyncIterator[EnvProvider]:
        yield PacedProvider(config)
