"""``DirectEnv``: a gymnasium GUI environment called inline, on the event loop of the caller, for runs in real time.

The mock desktop needs a tenth of a millisecond for a step, less than handing it to a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.error import ResetNeeded
from typing_extensions import override

from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.base import GuiEnv


class DirectEnv(AsyncEnv):
    """One running desktop: a ``GuiEnv``, or anything with its plain calls."""

    def __init__(self, desktop: Any) -> None:
        self._desktop = desktop

    @override
    async def reset(self, task: Task, *, seed: int) -> Observation:
        try:
            self._desktop.begin(task, seed)
            observation: Observation = self._desktop.observe()
            return observation
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise EnvBroken(f"the desktop failed in reset for task {task.id}: {exc!r}") from exc

    @override
    async def step(self, action: str) -> StepResult:
        try:
            over = self._desktop.act(action)
            return StepResult(self._desktop.observe(), over)
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise EnvBroken(f"the desktop failed in step {action!r}: {exc!r}") from exc

    @override
    async def evaluate(self) -> float:
        try:
            return float(self._desktop.evaluate())
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise ScoreUnavailable(f"the evaluator failed: {exc!r}") from exc

    @override
    async def close(self) -> None:
        self._desktop.close()


class DirectProvider(EnvProvider):
    """Starts desktops at once."""

    def __init__(self, make_env: Callable[[], GuiEnv]) -> None:
        self._make_env = make_env

    @override
    async def start(self, slot: int) -> DirectEnv:
        try:
            return DirectEnv(self._make_env())
        except Exception as exc:
            raise EnvStartFailed(f"the desktop of slot {slot} could not be made: {exc!r}") from exc
