"""DirectEnv: a gymnasium GUI environment as fast as it is, on the loop of whoever asks, for runs in real time.

It is called inline: the mock desktop needs a tenth of a millisecond a step, less than handing it to a thread.
"""

from __future__ import annotations

from collections.abc import Callable

from gymnasium.error import ResetNeeded

from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.base import GuiEnv


class DirectEnv:
    """One running desktop; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(self, desktop: GuiEnv) -> None:
        self._desktop = desktop

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set the desktop up for ``task`` and return what it shows first."""
        try:
            self._desktop.begin(task, seed)
            return self._desktop.observe()
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise EnvBroken(f"the desktop failed in reset for task {task.id}: {exc!r}") from exc

    async def step(self, action: str) -> StepResult:
        """Carry out one action and return what the desktop shows then."""
        try:
            over = self._desktop.act(action)
            return StepResult(self._desktop.observe(), over)
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise EnvBroken(f"the desktop failed in step {action!r}: {exc!r}") from exc

    async def evaluate(self) -> float:
        """Return the score of the desktop's present state, in [0, 1]."""
        try:
            return self._desktop.evaluate()
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise ScoreUnavailable(f"the evaluator failed: {exc!r}") from exc

    async def close(self) -> None:
        """Let the desktop go."""
        self._desktop.close()


class DirectProvider:
    """Starts desktops at once; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(self, make_env: Callable[[], GuiEnv]) -> None:
        self._make_env = make_env

    async def start(self, slot: int) -> DirectEnv:
        """Make a desktop."""
        try:
            return DirectEnv(self._make_env())
        except Exception as exc:
            raise EnvStartFailed(f"the desktop of slot {slot} could not be made: {exc!r}") from exc
